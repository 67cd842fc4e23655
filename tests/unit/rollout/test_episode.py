import asyncio
import threading
from typing import Any

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import tool
from agentfly_core.inference.sampler import Request
from agentfly_core.inference.scripted import Scripted
from agentfly_core.records.trajectory import (
    Ending,
    Message,
    Observation,
    Problem,
    Sampled,
    Score,
    ToolCall,
    Trajectory,
    Unscored,
)
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.system.service import ServiceLost
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.testing.letters import STOP, Letters, encode
from tests.support.policies import chained
from tests.support.waiting import LIMIT


class Counter(Environment):
    """Counts, and can be lost."""

    async def reset(self, problem: Problem) -> None:
        self.count = 0

    def up(self) -> int:
        self.count += 1
        return self.count


class Ledger(Counter): ...


@tool
async def up(lost: bool = False, *, counter: Counter) -> int:
    if lost:
        raise ServiceFailure("the counter's process died")
    return counter.up()


@tool
async def book(*, ledger: Ledger, counter: Counter) -> list[str]:
    return [type(ledger).__name__, type(counter).__name__]


@reward
async def counted(counter: Counter, trajectory: Trajectory) -> float:
    if trajectory.chain == 3:
        raise RuntimeError("no judge")
    return counter.count


async def test_a_reward_sees_the_environment_that_the_tools_used() -> None:
    trajectory = await play(["<up><up>", "<up>", "ok"], spec=rollout_spec(up, rewards=[counted]))
    assert trajectory.observed == {"counted": Score(3.0)}
    (scored,) = await score([trajectory], {counted: 0.5})
    assert scored.reward == 1.5


async def test_two_environment_kinds_in_one_episode_are_not_mixed_up() -> None:
    trajectory = await play(["<book>", "ok"], book)
    assert trajectory.observations[0].content == '["Ledger", "Counter"]'


async def test_a_lost_environment_or_failed_reward_costs_one_episode() -> None:
    sampler = scripted(chained(lambda chain: (f"<up lost={chain == 2}>", "<up>", "ok")))
    rules = rollout_spec(up, rewards=[counted], limits={Counter: 8})
    trajectories, timings, _ = await play_all(episode_specs(ADD, chains=8), rules, sampler)
    assert [t.chain for t in trajectories] == list(range(8))
    assert [t.trajectory_id for t in timings] == [t.id for t in trajectories]
    lost = trajectories.pop(2)
    assert (lost.ending, lost.error) == (
        Ending.FAILED,
        "ServiceFailure: the counter's process died",
    )
    assert (len(lost.turns), lost.observed) == (1, {})
    assert {t.ending for t in trajectories} == {Ending.NO_TOOL_CALLS}
    unscored = trajectories.pop(2)
    found = unscored.observed["counted"]
    assert isinstance(found, Unscored) and "counted: RuntimeError: no judge, at " in found.reason
    assert [t.observed for t in trajectories] == [{"counted": Score(2.0)}] * 6


async def test_a_lost_environment_is_closed_and_replaced() -> None:
    made: list[str] = []

    class Traced(Counter):
        async def start(self) -> None:
            made.append("start")

        async def close(self) -> None:
            made.append("close")

    async def lose(traced: Any, chain: int) -> int:
        made.append(f"use {chain} of {traced.count}")
        traced.count += 1
        if chain == 0:
            raise ServiceFailure("gone")
        return int(traced.count)

    lose.__annotations__ = {"traced": Traced, "chain": int, "return": int}
    sampler = scripted(chained(lambda chain: (f"<lose chain={chain}>", "ok")))
    rules = rollout_spec(tool(lose), limits={Traced: 1})
    trajectories, *_ = await play_all(episode_specs(ADD, chains=3), rules, sampler)
    assert made == ["start", "use 0 of 0", "close", "start", "use 1 of 0", "use 2 of 0", "close"]
    assert [t.ending for t in trajectories] == [
        Ending.FAILED,
        Ending.NO_TOOL_CALLS,
        Ending.NO_TOOL_CALLS,
    ]


async def test_an_environment_used_by_a_hanging_tool_is_not_lent_again() -> None:
    users: list[Counter] = []
    opened = threading.Event()

    @tool(timeout=0.01)
    def hang(*, counter: Counter) -> None:
        users.append(counter)
        opened.wait(LIMIT)

    sampler = scripted(saying("<hang>", "ok"))
    rules = rollout_spec(hang, limits={Counter: 1})
    trajectories, *_ = await play_all(episode_specs(ADD, chains=2), rules, sampler)
    opened.set()
    assert users[0] is not users[1]
    assert [t.observations for t in trajectories] == [
        (Observation("hang", "no result within 0.01 s", error=True),)
    ] * 2


async def test_episodes_take_turns_and_each_gets_a_clean_environment() -> None:
    seats: list[int] = []
    left: list[int] = []

    class Seated(Scripted):
        def shard(self, episodes: int) -> Any:
            seats.append(episodes)
            return super().shard(episodes)

        def close(self) -> None:
            left.append(1)

    sampler = Seated(encode, STOP, saying("<up>", "ok"))
    rules = rollout_spec(up, rewards=[counted], limits={Counter: 2})
    trajectories, _, measured = await play_all(
        episode_specs(ADD, Problem("b", "?"), chains=3), rules, sampler
    )
    assert (seats, len(left)) == ([2], 2)
    assert (measured["resources/Counter/most_in_use"], measured["resources/Counter/started"]) == (
        2,
        2,
    )
    assert [t.observed for t in trajectories] == [{"counted": Score(1.0)}] * 6


async def test_a_lost_sampler_ends_the_shard_with_that_very_error() -> None:
    async def policy(conversation: Conversation) -> str:
        if conversation.chain == 1:
            raise ServiceLost("the server died")
        return "ok"

    with pytest.raises(ServiceLost, match="the server died"):
        await play_all(episode_specs(ADD, chains=4), rollout_spec(), scripted(policy))


async def test_an_internal_error_is_reported_before_a_lost_sampler() -> None:
    both = asyncio.Barrier(2)

    class Failing(Scripted):
        async def sample(self, request: Request) -> Sampled:
            await both.wait()
            raise (
                KeyError("a bug") if request.conversation.chain else ServiceLost("the server died")
            )

    with pytest.raises(EpisodeBroken, match="KeyError: 'a bug'"):
        await play_all(
            episode_specs(ADD, chains=2), rollout_spec(), Failing(encode, STOP, saying())
        )


async def test_an_agent_error_before_the_first_reply_names_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def looked_up(episode: Episode) -> str:
        return str(episode.problem.facts["hint"])

    async def hinted(episode: Episode) -> Ending:
        await episode.reply(Message("user", looked_up(episode)))
        return Ending.NO_TOOL_CALLS

    problems = episode_specs(ADD, Problem("told", "?", {"hint": "99"}), chains=2)
    found, *_ = await play_all(problems, rollout_spec(agent=hinted), scripted(saying("ok")))
    where = f"{__file__}:{looked_up.__code__.co_firstlineno + 1} in looked_up"
    assert [(t.ending, t.error) for t in found] == [
        (Ending.FAILED, f"The agent hinted raised KeyError: 'hint', at {where}")
    ] * 2 + [(Ending.NO_TOOL_CALLS, None)] * 2
    (logged,) = caplog.messages
    assert logged.startswith(f"The agent hinted failed at {where}:")
    assert '    return str(episode.problem.facts["hint"])' in logged


async def test_an_agent_that_fails_after_a_reply_is_still_scored() -> None:
    async def parses(episode: Episode) -> Ending:
        reply = await episode.reply(*episode.opening)
        await episode.call(ToolCall("up", {}))
        episode.answer(str(int(reply.content)))
        return Ending.NO_TOOL_CALLS

    rules = rollout_spec(up, agent=parses, rewards=[counted])
    (trajectory,), *_ = await play_all(episode_specs(ADD), rules, scripted(saying("ninety-nine")))
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.AGENT_ERROR, 1)
    assert trajectory.error and "ValueError: invalid literal for int()" in trajectory.error
    assert (trajectory.observed, trajectory.answer) == ({"counted": Score(1.0)}, None)
    (scored,) = await score([trajectory], {counted: 1.0})
    assert scored.reward == 1.0


async def test_whoever_tests_an_agent_gets_its_error() -> None:
    async def hinted(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        raise KeyError("hint")

    with pytest.raises(KeyError, match="hint"):
        await play(["ok"], spec=rollout_spec(agent=hinted))


async def test_a_service_lost_by_an_agent_fails_the_episode() -> None:
    async def careless(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        try:
            await episode.call(ToolCall("up", {"lost": True}))
        except ServiceFailure as error:
            raise RuntimeError("no counter") from error
        return Ending.NO_TOOL_CALLS

    rules = rollout_spec(up, agent=careless)
    (trajectory,), *_ = await play_all(episode_specs(ADD), rules, scripted(saying("ok")))
    assert trajectory.error == "ServiceFailure: the counter's process died"


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Mute(), "Mute: str() failed with ValueError"),
        (SystemExit(3), "RuntimeError: it called exit(3)"),
        (ValueError(), "ValueError, without a message"),
    ],
)
async def test_whatever_an_agent_raises_is_told(error: BaseException, told: str) -> None:
    async def raising(episode: Episode) -> Ending:
        raise error

    rules = rollout_spec(agent=raising)
    (trajectory,), *_ = await play_all(episode_specs(ADD), rules, scripted(saying("ok")))
    assert str(trajectory.error).startswith(f"The agent raising raised {told}, at {__file__}:")


async def test_an_agent_without_an_ending_is_named_with_its_line() -> None:
    async def forgetful(episode: Episode) -> Any:
        await episode.reply(*episode.opening)

    rules = rollout_spec(agent=forgetful)
    (trajectory,), *_ = await play_all(episode_specs(ADD), rules, scripted(saying("ok")))
    assert trajectory.ending is Ending.AGENT_ERROR and trajectory.error
    assert "The agent forgetful returned None, expected an Ending" in trajectory.error
    assert trajectory.error.endswith(f", at {__file__}:{forgetful.__code__.co_firstlineno}")


async def test_an_error_in_a_template_is_told_with_its_own_line() -> None:
    class Broken(Letters):
        def parse(self, reply: Any) -> Message:
            raise IndexError("template")

    with pytest.raises(
        EpisodeBroken, match=r"IndexError: template\nLook at .*test_episode.py:\d+ in parse"
    ):
        await play_all(episode_specs(ADD), rollout_spec(template=Broken()), scripted(saying("ok")))


async def test_an_environment_that_cannot_start_fails_its_episode_only() -> None:
    class Unmade(Counter):
        def __init__(self) -> None:
            raise Mute

    class Stateless(Counter):
        def state_key(self) -> str:
            raise Mute

    def asked(kind: type[Environment]) -> Any:
        async def use(thing: Any) -> str:
            return "ok"

        use.__annotations__ = {"thing": kind, "return": str}
        return tool(use)

    for kind, what in (
        (Unmade, "Unmade could not be created"),
        (Stateless, "Stateless.state_key() failed"),
    ):
        trajectory = await play(["<use>", "ok"], asked(kind))
        assert trajectory.ending is Ending.FAILED
        told = f"ServiceFailure: {what}: Mute: str() failed with ValueError"
        assert trajectory.error and trajectory.error.startswith(told)


def test_an_environment_without_a_limit_is_refused() -> None:
    told = r"needs a Counter, but `environments` has no.*tests.unit.rollout.test_episode:Counter: 8"
    with pytest.raises(ValueError, match=told):
        rollout_spec(up, limits={})
