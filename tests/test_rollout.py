from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from letters import STOP, Letters, assigned, decode, encode, mask, playbook, scripted, silent, tokens

from agentfly_core.agent import Episode
from agentfly_core.environment import Environment, ServiceFailure
from agentfly_core.parquet import read_trajectories, write_trajectories
from agentfly_core.record import (
    BadCall,
    Ending,
    Message,
    Observation,
    Problem,
    Sampled,
    Score,
    ToolCall,
    Trajectory,
    Unscored,
    rows,
)
from agentfly_core.reward import reward, score
from agentfly_core.rollout import collect
from agentfly_core.sampler import Request, SamplerLost
from agentfly_core.samplers.scripted import Scripted
from agentfly_core.tool import Tool, ToolError, tool
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator

ADD = Problem("add-41-58", "41+58?", {"answer": "99"})


async def play(replies: list[str], *tools: Tool, **settings: Any) -> Trajectory:
    """One episode whose replies are given."""
    sampler = scripted(lambda problem, chain, turn: replies[turn])
    (trajectory,), *_ = await collect(assigned(ADD), playbook(*tools, **settings), sampler, silent)
    return trajectory


async def test_two_turns_are_kept_token_by_token_and_only_replies_are_sampled() -> None:
    trajectory = await play(["<calculator expression=41+58>", "99"], calculator)
    assert tokens(trajectory) == "^u41+58?$^a<calculator expression=41+58>$^t99$^a99$"
    assert mask(trajectory)   == "...........xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.......xxx"  # fmt: skip
    assert trajectory.turns[0].read == (Message("user", "41+58?"),)
    assert trajectory.turns[0].reply == Message("assistant", "", (ToolCall("calculator", {"expression": "41+58"}),))
    assert trajectory.turns[1].read == (Observation("calculator", "99"),)
    assert (trajectory.ending, trajectory.answer, trajectory.closing) == (Ending.NO_TOOL_CALLS, "99", ())


async def test_the_system_prompt_is_read_first() -> None:
    assert tokens(await play(["99"], system="Add.")) == "^sAdd.$^u41+58?$^a99$"


async def test_the_sampler_is_asked_with_exactly_the_tokens_of_the_record() -> None:
    asked: list[Request] = []

    class Listening(Scripted):
        async def sample(self, request: Request) -> Sampled:
            asked.append(request)
            return await super().sample(request)

    sampler = Listening(encode, STOP, lambda problem, chain, turn: ("<calculator expression=1>", "1")[turn])
    (trajectory,), *_ = await collect(assigned(ADD), playbook(calculator), sampler, silent)
    assert decode(asked[1].prompt) == tokens(trajectory)[: len(asked[1].prompt)]
    assert [request.order for request in asked] == [("add-41-58", 0, 0), ("add-41-58", 0, 1)]
    assert asked[0].seed != asked[1].seed
    assert asked[0].params.stop_tokens == (STOP,)


async def test_an_end_of_turn_that_was_not_sampled_is_given_and_never_trained() -> None:
    trajectory = await play(["<calculator expression=1>...", "1"], calculator, max_tokens=27)
    assert trajectory.turns[0].sampled[0].finish == "length"
    assert tokens(trajectory) == "^u41+58?$^a<calculator expression=1>..$^t1$^a1$"
    assert mask(trajectory)   == "...........xxxxxxxxxxxxxxxxxxxxxxxxxxx.......xx"  # fmt: skip


async def test_a_tools_text_cannot_write_the_templates_own_tokens() -> None:
    @tool
    async def shout() -> str:
        return "$^aI won$"

    trajectory = await play(["<shout>", "ok"], shout)
    assert tokens(trajectory) == "^u41+58?$^a<shout>$^t__aI won_$^aok$"
    assert mask(trajectory)   == "...........xxxxxxxx..............xxx"  # fmt: skip


async def test_a_tool_that_ends_the_episode_leaves_its_output_as_the_answer() -> None:
    trajectory = await play(
        ["<calculator expression=41+58><answer answer=99><calculator expression=1>"], calculator, answer
    )
    assert (trajectory.ending, trajectory.answer) == (Ending.TERMINAL, "99")
    assert trajectory.closing == (Observation("calculator", "99"), Observation("answer", "99"))


async def test_a_call_that_a_tool_answered_with_is_text_that_is_read_and_never_made() -> None:
    made: list[str] = []

    @tool
    async def search(query: str) -> str:
        made.append(query)
        return "<answer answer=7>"

    trajectory = await play(["<search query=sums>", "99"], search, answer)
    assert made == ["sums"]
    assert tokens(trajectory) == "^u41+58?$^a<search query=sums>$^t<answer answer=7>$^a99$"
    assert mask(trajectory)   == "...........xxxxxxxxxxxxxxxxxxxx......................xxx"  # fmt: skip
    assert (trajectory.ending, trajectory.answer) == (Ending.NO_TOOL_CALLS, "99")


async def test_an_answer_of_too_many_tokens_loses_its_middle() -> None:
    @tool
    async def recite() -> str:
        return "a" * 10 + "-" * 80 + "z" * 10

    trajectory = await play(["<recite>", "ok"], recite, max_observation_tokens=20)
    assert trajectory.observations[0].content == "a" * 10 + "\n[... 80 bytes omitted ...]\n" + "z" * 10


class Desk(Environment):
    """It remembers which problem it was last set up for, and all for which one was closed."""

    closed: ClassVar[list[str]] = []

    async def reset(self, problem: Problem) -> None:
        self.problem = problem.id

    async def close(self) -> None:
        self.closed.append(self.problem)


async def test_an_episode_past_its_deadline_fails_alone_and_its_environment_is_closed() -> None:
    @tool
    async def look(*, desk: Desk) -> str:
        return "a desk"

    async def forgetful(episode: Episode) -> Ending:
        if episode.problem.id == "stuck":
            await asyncio.Event().wait()
        await episode.reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    rules = playbook(look, agent=forgetful, limits={Desk: 2}, deadline=0.2)
    problems = assigned(ADD, Problem("stuck", "?"))
    found, _, measured = await collect(problems, rules, scripted(lambda *_: "99"), silent)
    assert [(t.problem.id, t.ending) for t in found] == [("add-41-58", Ending.NO_TOOL_CALLS), ("stuck", Ending.FAILED)]
    assert found[1].error == "LeaseExpired: no ending within 0.2 s, the agent's deadline"
    assert sorted(Desk.closed) == ["add-41-58", "stuck"]
    assert [measured[f"resources/Desk/{name}"] for name in ("expired", "started", "closed")] == [1, 2, 2]


async def test_an_agent_that_ends_without_an_answer_is_an_error() -> None:
    async def hasty(episode: Episode) -> Ending:
        return Ending.TERMINAL

    with pytest.raises(ValueError, match=r"agent hasty returned .* before there was any answer"):
        await play(["99"], agent=hasty)


async def test_a_failed_call_of_a_tool_that_ends_the_episode_does_not_end_it() -> None:
    trajectory = await play(["<answer anwser=99>", "<answer answer=99>"], answer)
    assert trajectory.ending is Ending.TERMINAL
    assert trajectory.observations[0].error
    assert trajectory.closing == (Observation("answer", "99"),)


async def test_an_episode_ends_after_its_turns_and_keeps_the_last_answers() -> None:
    trajectory = await play(["<calculator expression=1>", "<calculator expression=2>"], calculator, max_turns=2)
    assert (trajectory.ending, trajectory.answer, len(trajectory.turns)) == (Ending.MAX_TURNS, None, 2)
    assert trajectory.closing == (Observation("calculator", "2"),)


async def test_a_reply_is_cut_where_the_context_ends_and_so_is_the_episode() -> None:
    trajectory = await play(["<calculator expression=1>"], calculator, max_model_len=22)
    assert tokens(trajectory) == "^u41+58?$^a<calculator"
    assert trajectory.ending is Ending.MAX_MODEL_LEN


async def test_a_reply_that_ends_where_the_context_ends_still_counts() -> None:
    trajectory = await play(["99"], max_model_len=len("^u41+58?$^a99$"))
    assert (trajectory.ending, trajectory.answer) == (Ending.NO_TOOL_CALLS, "99")


async def test_an_answer_that_does_not_fit_is_not_read_but_kept() -> None:
    trajectory = await play(["<calculator expression=1>", "1"], calculator, max_model_len=40)
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.MAX_MODEL_LEN, 1)
    assert trajectory.closing == (Observation("calculator", "1"),)


async def test_a_prompt_that_does_not_fit_is_an_episode_without_turns() -> None:
    trajectory = await play(["99"], max_model_len=11)
    assert (trajectory.ending, trajectory.turns, list(rows(trajectory.turns))) == (Ending.MAX_MODEL_LEN, (), [])


async def test_what_the_model_got_wrong_is_answered_and_the_episode_goes_on() -> None:
    @tool
    async def crash() -> str:
        raise ToolError("Not like this.")

    replies = ["<calcluator expression=1><crash><calculator expresion=1><calculator expression=1+><calculator", "sorry"]
    trajectory = await play(replies, calculator, crash)
    assert trajectory.ending is Ending.NO_TOOL_CALLS
    unknown, crashed, misnamed, incomplete, unreadable = trajectory.observations
    assert unknown == Observation("unknown", "There is no tool 'calcluator'. Did you mean 'calculator'?", error=True)
    assert crashed == Observation("crash", "Not like this.", error=True)
    assert "there is no argument 'expresion'. Did you mean 'expression'?" in misnamed.content
    assert incomplete == Observation("calculator", "'1+' is not a complete expression.", error=True)
    assert unreadable == Observation("unreadable", "This tool call could not be read: > is missing", error=True)
    assert trajectory.turns[0].reply.calls[-1] == BadCall("calculator", "> is missing")


async def test_calls_of_one_reply_are_answered_in_order_and_parallel_ones_at_the_same_time() -> None:
    together = asyncio.Barrier(2)  # opens only when two calls stand at it
    done: list[str] = []

    @tool(parallel=True, timeout=5)
    async def meet(name: str) -> str:
        await together.wait()
        done.append(name)
        return name

    @tool
    async def alone(name: str) -> str:
        done.append(name)
        return name

    replies = ["<alone name=a><meet name=b><meet name=c><alone name=d>", "ok"]
    trajectory = await play(replies, meet, alone)
    assert [o.content for o in trajectory.observations] == ["a", "b", "c", "d"]
    assert (done[0], sorted(done[1:3]), done[3]) == ("a", ["b", "c"], "d")


async def test_a_slow_tool_of_one_episode_keeps_no_other_from_going_on() -> None:
    others_done = threading.Event()

    @tool
    def wait(chain: int) -> str:
        assert chain > 0 or others_done.wait(30), "the other episodes were blocked"
        return "ok"

    ended: list[int] = []

    def watch(trajectory: Trajectory) -> None:
        ended.append(trajectory.chain)
        if len(ended) == 7:
            others_done.set()

    sampler = scripted(lambda problem, chain, turn: (f"<wait chain={chain}>", "ok")[turn])
    trajectories, *_ = await collect(assigned(ADD, chains=8), playbook(wait), sampler, watch)
    assert ended[-1] == 0
    assert [o for t in trajectories for o in t.observations] == [Observation("wait", "ok")] * 8


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
    trajectory = await play(["<up><up>", "<up>", "ok"], up, rewards=[counted], limits={Counter: 1})
    assert trajectory.observed == {"counted": Score(3.0)}
    (scored,) = await score([trajectory], {counted: 0.5})
    assert scored.reward == 1.5


async def test_two_kinds_of_environment_in_one_episode_are_each_the_right_one() -> None:
    trajectory = await play(["<book>", "ok"], book, limits={Counter: 1, Ledger: 1})
    assert trajectory.observations[0].content == '["Ledger", "Counter"]'


async def test_one_lost_environment_and_one_failing_reward_cost_one_episode_each() -> None:
    sampler = scripted(lambda problem, chain, turn: (f"<up lost={chain == 2}>", "<up>", "ok")[turn])
    rules = playbook(up, rewards=[counted], limits={Counter: 8})
    trajectories, timings, _ = await collect(assigned(ADD, chains=8), rules, sampler, silent)
    assert [t.chain for t in trajectories] == list(range(8))
    assert [t.trajectory_id for t in timings] == [t.id for t in trajectories]
    lost = trajectories.pop(2)
    assert (lost.ending, lost.error) == (Ending.FAILED, "ServiceFailure: the counter's process died")
    assert (len(lost.turns), lost.observed) == (1, {})
    assert {t.ending for t in trajectories} == {Ending.NO_TOOL_CALLS}
    unscored = trajectories.pop(2)
    assert unscored.observed == {"counted": Unscored("counted: RuntimeError: no judge")}
    assert [t.observed for t in trajectories] == [{"counted": Score(2.0)}] * 6


async def test_a_lost_environment_is_closed_and_its_place_taken_by_a_fresh_one() -> None:
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
    sampler = scripted(lambda problem, chain, turn: (f"<lose chain={chain}>", "ok")[turn])
    rules = playbook(tool(lose), limits={Traced: 1})
    trajectories, *_ = await collect(assigned(ADD, chains=3), rules, sampler, silent)
    assert made == ["start", "use 0 of 0", "close", "start", "use 1 of 0", "use 2 of 0", "close"]
    assert [t.ending for t in trajectories] == [Ending.FAILED, Ending.NO_TOOL_CALLS, Ending.NO_TOOL_CALLS]


async def test_an_environment_in_the_hands_of_a_hanging_tool_is_not_lent_again() -> None:
    users: list[Counter] = []
    opened = threading.Event()

    @tool(timeout=0.01)
    def hang(*, counter: Counter) -> None:
        users.append(counter)
        opened.wait(30)

    sampler = scripted(lambda problem, chain, turn: ("<hang>", "ok")[turn])
    rules = playbook(hang, limits={Counter: 1})
    trajectories, *_ = await collect(assigned(ADD, chains=2), rules, sampler, silent)
    opened.set()
    assert users[0] is not users[1]
    assert [t.observations for t in trajectories] == [(Observation("hang", "no result within 0.01 s", error=True),)] * 2


async def test_more_episodes_than_environments_take_turns_and_each_finds_a_clean_one() -> None:
    seats: list[int] = []
    left: list[int] = []

    class Seated(Scripted):
        def shard(self, episodes: int) -> Any:
            seats.append(episodes)
            return super().shard(episodes)

        def leave(self) -> None:
            left.append(1)

    sampler = Seated(encode, STOP, lambda problem, chain, turn: ("<up>", "ok")[turn])
    rules = playbook(up, rewards=[counted], limits={Counter: 2})
    trajectories, _, measured = await collect(assigned(ADD, Problem("b", "?"), chains=3), rules, sampler, silent)
    assert (seats, len(left)) == ([2], 2)
    assert (measured["resources/Counter/most_in_use"], measured["resources/Counter/closed"]) == (2, 2)
    assert [t.observed for t in trajectories] == [{"counted": Score(1.0)}] * 6


async def test_a_lost_sampler_ends_the_shard_with_that_very_error() -> None:
    def script(problem: str, chain: int, turn: int) -> str:
        if chain == 1:
            raise SamplerLost("the server died")
        return "ok"

    with pytest.raises(SamplerLost, match="the server died"):
        await collect(assigned(ADD, chains=4), playbook(), scripted(script), silent)


async def test_a_mistake_of_ours_is_told_rather_than_a_sampler_lost_at_the_same_time() -> None:
    both = asyncio.Barrier(2)

    class Failing(Scripted):
        async def sample(self, request: Request) -> Sampled:
            await both.wait()
            raise KeyError("a bug") if request.order[1] else SamplerLost("the server died")

    with pytest.raises(KeyError, match="a bug"):
        await collect(assigned(ADD, chains=2), playbook(), Failing(encode, STOP, lambda *_: ""), silent)


async def test_a_mistake_of_ours_stops_the_shard_and_names_the_episode() -> None:
    class Broken(Letters):
        def parse(self, reply: Any) -> Message:
            raise IndexError("template")

    with pytest.raises(IndexError, match="template") as caught:
        await collect(assigned(ADD), playbook(template=Broken()), scripted(lambda *_: "ok"), silent)
    assert caught.value.__notes__ == ["While playing the problem 'add-41-58', chain 0."]


async def test_an_agent_must_say_how_the_episode_ended() -> None:
    async def forgetful(episode: Episode) -> Any:
        await episode.reply(*episode.opening)

    with pytest.raises(TypeError, match="agent forgetful returned None, expected an Ending"):
        await play(["99"], agent=forgetful)


async def test_an_agent_of_ones_own_decides_what_is_read() -> None:
    async def stubborn(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        while True:
            await episode.reply(Message("user", "Sure?"))

    trajectory = await play(["98", "99"], agent=stubborn, max_turns=2)
    assert tokens(trajectory) == "^u41+58?$^a98$^uSure?$^a99$"
    assert (trajectory.ending, trajectory.agent) == (Ending.MAX_TURNS, "stubborn")


async def test_the_same_assignments_give_the_same_record_in_the_same_order() -> None:
    sampler = scripted(lambda problem, chain, turn: (f"<calculator expression={chain}+1>", f"{chain}")[turn])
    problems = assigned(Problem("b", "?"), ADD, chains=3)
    first, *_ = await collect(problems, playbook(calculator), sampler, silent)
    again, *_ = await collect(problems[::-1], playbook(calculator), sampler, silent)
    assert first == again
    assert [(t.problem.id, t.chain) for t in first] == [(p, c) for p in ("add-41-58", "b") for c in range(3)]
    assert len({t.id for t in first}) == 6
    assert len({t.group for t in first}) == 2
    assert len({t.seed for t in first}) == 6


async def test_every_trajectory_is_told_to_the_watcher_as_it_ends() -> None:
    seen: list[Trajectory] = []
    trajectories, *_ = await collect(assigned(ADD, chains=3), playbook(), scripted(lambda *_: "ok"), seen.append)
    assert sorted(seen, key=lambda t: t.chain) == trajectories


async def test_no_episode_is_no_work() -> None:
    assert await collect([], playbook(), scripted(lambda *_: "ok"), silent) == ([], [], {})


async def test_times_say_what_an_episode_waited_for() -> None:
    sampler = scripted(lambda problem, chain, turn: ("<calculator expression=1>", "1")[turn])
    _, (timing,), _ = await collect(assigned(ADD), playbook(calculator), sampler, silent)
    assert [span.doing for span in timing.spans] == ["waiting", "generating", "tools", "generating", "rewards"]
    starts = [span.start for span in timing.spans]
    assert starts == sorted(starts)
    assert timing.started == starts[0]
    assert min(timing.generating, timing.tools, timing.waiting, timing.rewards) >= 0


async def test_whatever_tools_answer_the_record_can_be_written_and_read(tmp_path: Path) -> None:
    @tool(max_chars=40)
    async def odd(kind: str) -> Any:
        return {"half": "\ud83d", "nul": "\0", "bytes": b"\xff\xfe", "long": "x" * 10**6, "none": None}[kind]

    @tool
    async def fails(kind: str) -> str:
        raise ServiceFailure("half \ud83d pair")

    calls = "".join(f"<odd kind={kind}>" for kind in ("half", "nul", "bytes", "long", "none"))
    trajectories = [await play([calls, "ok"], odd), await play(["<fails kind=x>"], fails)]
    write_trajectories(tmp_path / "t.parquet", trajectories)
    assert read_trajectories(tmp_path / "t.parquet") == trajectories
    assert [o.content for o in trajectories[0].observations][3].count("x") == 40


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="2 tools are called 'calculator'"):
        playbook(calculator, tool(name="calculator")(answer.function))


def test_an_environment_without_a_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"asks for a Counter and there is no limit.*test_rollout:Counter: 8"):
        playbook(up)
