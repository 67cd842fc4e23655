"""Episodes that run together with late or slow ones."""

import asyncio
import threading
from typing import ClassVar

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import (
    Ending,
    Observation,
    Problem,
    Trajectory,
)
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from tests.support.policies import chained
from tests.support.waiting import LIMIT


class Desk(Environment):
    """Remembers its last problem, and the problems of all closed instances."""

    closed: ClassVar[list[str]] = []

    async def reset(self, problem: Problem) -> None:
        self.problem = problem.id

    async def close(self) -> None:
        self.closed.append(self.problem)


async def test_an_episode_past_its_deadline_closes_its_environment() -> None:
    @tool
    async def look(*, desk: Desk) -> str:
        return "a desk"

    async def forgetful(episode: Episode) -> Ending:
        if episode.problem.id == "stuck":
            await asyncio.Event().wait()
        await episode.reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    rules = rollout_spec(look, agent=forgetful, limits={Desk: 2}, deadline=3.0)
    problems = episode_specs(ADD, Problem("stuck", "?"))
    found, _, measured = await play_all(problems, rules, scripted(saying("99")))
    assert [(t.problem.id, t.ending) for t in found] == [
        ("add-41-58", Ending.NO_TOOL_CALLS),
        ("stuck", Ending.FAILED),
    ]
    assert found[1].error == "LeaseExpired: the agent did not end within its deadline of 3 s"
    assert sorted(Desk.closed) == ["add-41-58", "stuck"]
    assert [measured[f"resources/Desk/{name}"] for name in ("expired", "started", "closed")] == [
        1,
        2,
        1,
    ]


async def test_a_slow_tool_of_one_episode_keeps_no_other_from_going_on() -> None:
    others_done = threading.Event()

    @tool
    def wait(chain: int) -> str:
        assert chain > 0 or others_done.wait(LIMIT), "the other episodes were blocked"
        return "ok"

    ended: list[int] = []

    def watch(trajectory: Trajectory) -> None:
        ended.append(trajectory.chain)
        if len(ended) == 7:
            others_done.set()

    sampler = scripted(chained(lambda chain: (f"<wait chain={chain}>", "ok")))
    trajectories, *_ = await play_all(
        episode_specs(ADD, chains=8), rollout_spec(wait), sampler, watch
    )
    assert ended[-1] == 0
    assert [o for t in trajectories for o in t.observations] == [Observation("wait", "ok")] * 8
