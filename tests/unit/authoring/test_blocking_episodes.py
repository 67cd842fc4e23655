"""Code that holds the event loop of its process is named, and ends the work there."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

import pytest

from agentfly_core.authoring import event_loop
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.event_loop import LoopHeld, run
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.scoring import score_here
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Ending, Problem, Trajectory, Unscored
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from tests.support.rooms import Room
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("little_grace")
Work = Callable[[], Coroutine[Any, Any, Any]]


async def deaf(episode: Episode) -> Ending:
    """An agent that continues after its deadline."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await episode.reply(*episode.opening)
            return Ending.NO_TOOL_CALLS


async def test_a_deaf_agent_gets_no_replies_after_its_deadline() -> None:
    trajectory = await play(["99"], spec=rollout_spec(agent=deaf, deadline=0.1))
    assert (trajectory.ending, trajectory.turns) == (Ending.FAILED, ())
    assert trajectory.error == "LeaseExpired: the agent did not end within its deadline of 0.1 s"


async def test_an_agent_that_holds_the_loop_past_its_deadline_fails() -> None:
    async def holds(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        threading.Event().wait(1.2)
        return Ending.NO_TOOL_CALLS

    trajectory = await play(["99"], spec=rollout_spec(agent=holds, deadline=1.0))
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.FAILED, 1)


def blocking_tool(released: threading.Event) -> Work:
    @tool(timeout=0.05)
    async def search() -> str:
        released.wait(LIMIT)
        return "late"

    return lambda: play(["<search>", "ok"], search)


def blocking_task_of_a_tool(released: threading.Event) -> Work:
    async def blocks() -> None:
        released.wait(LIMIT)

    @tool(timeout=0.05)
    async def search() -> None:
        asyncio.get_running_loop().call_soon(asyncio.create_task, blocks())
        await asyncio.Event().wait()

    return lambda: play(["<search>", "ok"], search)


def blocking_agent(released: threading.Event) -> Work:
    async def agent(episode: Episode) -> Ending:
        released.wait(LIMIT)
        return Ending.NO_TOOL_CALLS

    return lambda: play(["99"], spec=rollout_spec(agent=agent))


def blocking_policy(released: threading.Event) -> Work:
    async def policy(conversation: Conversation) -> str:
        released.wait(LIMIT)
        return "ok"

    return lambda: play_all(episode_specs(ADD), rollout_spec(), scripted(policy))


class Sluggish(Room):
    """Its reset blocks."""

    released: ClassVar[threading.Event]

    async def reset(self, problem: Problem) -> None:
        self.released.wait(LIMIT)


def blocking_reset(released: threading.Event) -> Work:
    Sluggish.released = released

    @tool
    async def look(*, room: Sluggish) -> str:
        return "seen"

    return lambda: play(["ok"], look)


def blocking_callback(released: threading.Event) -> Work:
    @tool
    async def search() -> None:
        asyncio.get_running_loop().call_soon(released.wait, LIMIT)
        await asyncio.Event().wait()

    return lambda: play(["<search>", "ok"], search)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (blocking_tool, "The tool 'search'"),
        (blocking_task_of_a_tool, "The tool 'search'"),
        (blocking_agent, "The agent agent"),
        (blocking_policy, "The policy tests.unit.authoring.test_blocking_episodes:blocking_policy"),
        (blocking_reset, "Sluggish.reset()"),
    ],
)
def test_blocking_code_is_named_and_later_work_has_another_loop(
    made: Callable[[threading.Event], Work],
    name: str,
    released: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as short, pytest.raises(LoopHeld) as held:
        short.setattr("agentfly_core.authoring.time_limits.LONGEST", 0.3)
        short.setattr("agentfly_core.rollout.shard.LEASE_SECONDS", 0.3)
        run(made(released)())
    assert str(held.value).startswith(f"{name} held the event loop for more than ")
    assert run(play(["99"])).ending is Ending.NO_TOOL_CALLS


def test_blocking_code_outside_of_calls_is_reported(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short, pytest.raises(LoopHeld, match=r"^Code outside"):
        short.setattr(event_loop, "LONGEST", 0.3)
        run(blocking_callback(released)())
    assert run(play(["99"])).ending is Ending.NO_TOOL_CALLS


def test_a_loop_that_was_idle_for_long_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    run(asyncio.sleep(0))
    monkeypatch.setattr(event_loop, "TICK", 0.001)
    monkeypatch.setattr(event_loop._loops[-1], "answered", -1e9)

    async def takes_some_ticks() -> str:
        return await asyncio.to_thread(lambda: str(threading.Event().wait(0.05)))

    assert run(takes_some_ticks()) == "False"


def test_an_interrupt_between_two_pieces_of_work_is_not_lost() -> None:
    event_loop.interrupt()
    with pytest.raises(event_loop.Interrupted):
        run(asyncio.Event().wait())
    assert run(play(["99"])).ending is Ending.NO_TOOL_CALLS


def test_a_reward_that_blocks_the_loop_leaves_others_scored(
    released: threading.Event,
) -> None:
    @reward(timeout=1.0)
    async def judge(trajectory: Trajectory) -> float:
        if trajectory.chain == 1:
            released.wait(LIMIT)
        return 1.0

    specs = episode_specs(ADD, chains=4)
    played, *_ = run(play_all(specs, rollout_spec(), scripted(saying("ok"))))
    scores = score_here(played, {judge: 1.0}, "")
    assert [score.reward for score in scores if score is not scores[1]] == [1.0] * 3
    assert isinstance(scores[1].reward, Unscored)
    assert scores[1].reward.reason.startswith(
        "judge: The reward 'judge' held the event loop for more than 1 s"
    )
