"""`Episode.fork`: episodes that begin in the middle of another one."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import StepResult, tool
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.models.model_config import tokenizer
from agentfly_core.records.parquet import count_rows, read_trajectories, write_trajectories
from agentfly_core.records.trajectory import Branch, Ending, Message, Problem, ToolCall, Trajectory
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from tests.support.counting import Count
from tests.support.learner_jobs import DEVICE

CALLS: list[str] = []
"""All executed calls of tools."""


class Tape(Environment):
    """An environment that cannot be restored."""

    async def reset(self, problem: Problem) -> None:
        self.count = 0


@tool
async def add(number: int, *, count: Count) -> str:
    """Add."""
    CALLS.append(f"add {number}")
    count.count += number
    return str(count.count)


@tool
async def wind(*, tape: Tape) -> str:
    """Wind."""
    CALLS.append("wind")
    tape.count += 1
    return str(tape.count)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


async def by_seed(conversation: Conversation) -> str:
    """Reply with a part of the seed, so that replies of other seeds differ."""
    return f"r{conversation.seed % 1000}"


def user(text: str) -> Message:
    return Message("user", text)


async def three_ways(episode: Episode) -> Ending:
    """Reply and add 1; in three ways add the way and reply."""
    await episode.reply(*episode.opening)
    (one,) = await episode.call(ToolCall("add", {"number": 1}))
    way = await episode.fork(2)
    (more,) = await episode.call(ToolCall("add", {"number": 10 * way}))
    await episode.reply(one, more, user(f"way {way}"))
    return Ending.NO_TOOL_CALLS


async def leaves(agent: Agent, *tools: object, chains: int = 1, **rules: Any) -> list[Trajectory]:
    spec = rollout_spec(*(tools or (add,)), agent=agent, max_turns=9, **rules)
    return (await play_all(episode_specs(ADD, chains=chains), spec, scripted(by_seed)))[0]


async def test_children_go_on_where_their_parent_forked() -> None:
    parent, *children = await leaves(three_ways)
    # the first call was executed once, and each leaf has its own environment
    assert CALLS == ["add 1", "add 0", "add 10", "add 20"]
    read = [
        [getattr(item, "content", "") for item in one.turns[1].read] for one in (parent, *children)
    ]
    assert read == [["1", "1", "way 0"], ["1", "11", "way 1"], ["1", "21", "way 2"]]


async def test_a_parent_never_waits_for_leases_of_its_children() -> None:
    events: list[str] = []

    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.call(ToolCall("add", {"number": 1}))
        way = await episode.fork(2)
        events.append(f"{way} forks")
        await episode.call(ToolCall("add", {"number": 1}))
        events.append(f"{way} ends")
        return Ending.NO_TOOL_CALLS

    played = await leaves(agent, limits={Count: 1})
    assert [(one.ending, one.error) for one in played] == [(Ending.NO_TOOL_CALLS, None)] * 3
    # with one environment a child begins after the end of its parent, which still uses it
    assert events == ["0 forks", "0 ends", "1 forks", "1 ends", "2 forks", "2 ends"]


async def test_children_share_turns_and_sample_their_own() -> None:
    parent, *children = await leaves(three_ways)
    assert [one.turns[0] for one in children] == [parent.turns[0]] * 2
    assert len({one.turns[1].reply.content for one in (parent, *children)}) == 3
    assert [one.branch for one in children] == [Branch(parent.id, 1)] * 2
    assert parent.branch is None
    assert len({one.group for one in (parent, *children)}) == 1


async def test_children_are_numbered_by_their_first_chain() -> None:
    played = await leaves(three_ways, chains=4)
    assert [one.chain for one in played] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    parents = {one.id: one.chain for one in played if one.branch is None}
    assert {one.chain: parents[one.branch.parent] for one in played if one.branch} == {
        chain: chain % 4 for chain in range(4, 12)
    }


async def test_ids_and_seeds_do_not_depend_on_other_chains() -> None:
    alone = await leaves(three_ways)
    together = await leaves(three_ways, chains=4)
    mine = [one for one in together if one.chain % 4 == 0]
    assert [(one.id, one.seed) for one in mine] == [(one.id, one.seed) for one in alone]
    assert len({one.id for one in together}) == len({one.seed for one in together}) == 12


async def test_a_child_may_fork_again() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        first = await episode.fork(1)
        await episode.reply(user(f"first {first}"))
        second = await episode.fork(1)
        await episode.reply(user(f"second {second}"))
        return Ending.NO_TOOL_CALLS

    played = await leaves(agent)
    questions = [[turn.read[-1].content for turn in one.turns[1:]] for one in played]
    assert questions == [
        ["first 0", "second 0"],
        ["first 1", "second 0"],
        ["first 0", "second 1"],
        ["first 1", "second 1"],
    ]
    shared = {one.branch and (one.branch.parent, one.branch.turns) for one in played}
    assert shared == {None, (played[0].id, 1), (played[0].id, 2), (played[1].id, 2)}


async def test_replies_in_gather_are_repeated() -> None:
    async def agent(episode: Episode) -> Ending:
        parts = [episode.context(*episode.opening, user(str(n))) for n in range(3)]
        await episode.gather(*(part.reply() for part in parts))
        way = await episode.fork(1)
        await parts[2].reply(user(f"way {way}"))
        return Ending.NO_TOOL_CALLS

    parent, child = await leaves(agent)
    assert child.turns[:3] == parent.turns[:3]
    assert child.branch == Branch(parent.id, 3)
    contexts = {turn.read[-1].content: turn.context for turn in child.turns}
    assert contexts["way 1"] == contexts["2"]


async def test_two_continuations_of_a_reply_are_repeated() -> None:
    async def agent(episode: Episode) -> Ending:
        begun = [*episode.opening, await episode.reply(*episode.opening)]
        await episode.reply_to([*begun, user("A")])
        await episode.reply_to([*begun, user("B")])
        await episode.fork(1)
        return Ending.NO_TOOL_CALLS

    parent, child = await leaves(agent)
    assert len({turn.reply.content for turn in parent.turns}) == 3
    assert child.branch == Branch(parent.id, 3)


async def test_every_speaker_shares_its_turns() -> None:
    async def agent(episode: Episode) -> Ending:
        helper = episode.speaker("helper")
        await helper.reply(user("Hi."))
        await episode.reply(*episode.opening)
        way = await episode.fork(1)
        await helper.reply(user(f"way {way}"))
        return Ending.NO_TOOL_CALLS

    played = {(one.chain, one.agent): one for one in await leaves(agent)}
    for name in ("agent", "helper"):
        parent, child = played[0, name], played[1, name]
        assert child.branch == Branch(parent.id, 1)
    assert len(played[1, "helper"].turns) == 2


async def test_without_snapshots_the_calls_are_executed_again() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.call(ToolCall("wind", {}))
        await episode.fork(1)
        (last,) = await episode.call(ToolCall("wind", {}))
        await episode.reply(*episode.opening, last)
        return Ending.NO_TOOL_CALLS

    parent, child = await leaves(agent, wind)
    assert CALLS == ["wind"] * 4
    assert [one.turns[0].read[-1].content for one in (parent, child)] == ["2", "2"]


async def test_another_answer_of_a_repeated_call_fails_the_child() -> None:
    answers = iter(["heads", "tails"])

    @tool
    async def toss(*, tape: Tape) -> str:
        """Toss."""
        return next(answers)

    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.call(ToolCall("toss", {}))
        await episode.fork(1)
        return Ending.NO_TOOL_CALLS

    parent, child = await leaves(agent, toss)
    assert (parent.ending, child.ending) == (Ending.NO_TOOL_CALLS, Ending.FAILED)
    assert "gets tool results that differ from its parent" in str(child.error)


@pytest.mark.parametrize("difference", ["prompt", "call", "early", "end"])
async def test_an_agent_that_asks_differently_fails_the_child(difference: str) -> None:
    begun = 0

    async def agent(episode: Episode) -> Ending:
        nonlocal begun
        begun += 1
        again = begun == 2
        if again and difference == "end":
            return Ending.MAX_TURNS
        if again and difference == "early":
            await episode.fork(1)
        await episode.reply(*episode.opening, user(f"{again and difference == 'prompt'}"))
        await episode.call(ToolCall("add", {"number": 1 + (again and difference == "call")}))
        await episode.fork(1)
        return Ending.NO_TOOL_CALLS

    parent, child = await leaves(agent)
    assert (parent.ending, child.ending) == (Ending.NO_TOOL_CALLS, Ending.FAILED)
    assert {
        "prompt": "requests a reply to a prompt that differs",
        "call": "makes tool calls that differ",
        "early": "forks before it has repeated",
        "end": "ends before the point at which its parent forked",
    }[difference] in str(child.error)


async def limited(**limit: int) -> list[Trajectory]:
    """A parent and its child, which reply until they reach a limit."""

    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.reply(user("Again."))
        await episode.fork(1)
        while True:
            await episode.reply(user("Again."))

    spec = rollout_spec(agent=agent, **{"max_turns": 99, **limit})
    return (await play_all(episode_specs(ADD), spec, scripted(by_seed)))[0]


async def test_limits_count_the_whole_path() -> None:
    played = await limited(max_turns=4)
    assert [(len(one.turns), one.ending) for one in played] == [(4, Ending.MAX_TURNS)] * 2


async def test_token_limits_count_the_whole_path() -> None:
    for one in await limited(max_model_len=90):
        sizes = [len(turn.given.tokens) + len(turn.sampled[0].tokens) for turn in one.turns]
        assert one.ending is Ending.MAX_MODEL_LEN
        assert 90 - 2 * max(sizes[1:]) <= sum(sizes) <= 90


async def test_facts_that_tools_change_are_those_of_the_fork() -> None:
    @tool
    async def learn(*, problem: Problem, count: Count) -> str:
        """Learn."""
        problem.facts["learned"] = True
        return "Learned."

    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.call(ToolCall("learn", {}))
        await episode.fork(1)
        await episode.reply(user(str(episode.problem.facts["learned"])))
        return Ending.NO_TOOL_CALLS

    played = await leaves(agent, learn)
    assert [one.turns[1].read[-1].content for one in played] == ["True", "True"]


async def test_rewards_of_repeated_calls_count_once() -> None:
    @tool
    async def earn(*, count: Count) -> StepResult:
        """Earn."""
        return StepResult("Earned.", reward=0.5)

    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.call(ToolCall("earn", {}))
        await episode.fork(1)
        return Ending.NO_TOOL_CALLS

    assert [one.turns[0].reward for one in await leaves(agent, earn)] == [0.5, 0.5]


async def test_a_reply_that_the_parent_discards_is_trained_in_the_child() -> None:
    async def agent(episode: Episode) -> Ending:
        first = await episode.turn(episode.opening)
        if not await episode.fork(1):
            first.trained = False
        return Ending.NO_TOOL_CALLS

    played = await leaves(agent)
    assert [one.turns[0].sampled[0].trained for one in played] == [False, True]


async def test_a_fork_amid_parts_is_refused() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.gather(episode.fork(1))
        return Ending.NO_TOOL_CALLS

    (trajectory,) = await leaves(agent)
    assert "outside of episode.gather" in str(trajectory.error)


async def test_a_child_that_ended_a_worker_is_not_played_again() -> None:
    _, child, other = await leaves(three_ways)
    blamed = [replace(one, blamed={child.episode: "SIGSEGV"}) for one in episode_specs(ADD)]
    spec = rollout_spec(add, agent=three_ways, max_turns=9)
    played = (await play_all(blamed, spec, scripted(by_seed)))[0]
    assert [(one.id, one.error) for one in played][1:] == [
        (child.id, "SIGSEGV"),
        (other.id, None),
    ]


async def test_the_record_stores_shared_turns_once(tmp_path: Path) -> None:
    async def agent(episode: Episode) -> Ending:
        for depth in range(3):
            await episode.reply(user(f"{depth} {await episode.fork(1)}"))
        return Ending.NO_TOOL_CALLS

    played = await leaves(agent)
    assert len(played) == 8
    path = tmp_path / "trajectories.parquet"
    write_trajectories(path, played)
    assert count_rows(path) == 8
    assert read_trajectories(path) == played
    # 2 first replies, 4 second ones, 8 third ones
    assert sum(len(one.own_turns) for one in played) == 14
    # without its parent a child is stored whole
    write_trajectories(path, played[-1:])
    assert read_trajectories(path) == played[-1:]


def waiting(waits: Callable[[int], int]) -> Agent:
    """Forks twice; its steps take a time that depends on the chain."""

    async def agent(episode: Episode) -> Ending:
        chain = episode.state.spec.chain
        await episode.reply(*episode.opening)
        for _ in range(waits(chain)):
            await asyncio.sleep(0)
        ways = [await episode.fork(2), await episode.fork(1)]
        await episode.reply(user(f"ways {ways}"))
        for _ in range(waits(chain)):
            await asyncio.sleep(0)
        return Ending.NO_TOOL_CALLS

    return agent


@pytest.mark.parametrize("in_process", [False, True])
async def test_leaves_do_not_depend_on_times(nano: Path, in_process: bool) -> None:
    transformers = TransformersSampler(DEVICE)
    transformers.load(nano, 3)
    specs = episode_specs(ADD, replace(ADD, id="other", prompt="3+4?"), chains=2)
    played = []
    for waits in (lambda chain: 50 - chain, lambda chain: chain):
        rules = rollout_spec(agent=waiting(waits), max_tokens=8)
        if in_process:
            rules = replace(rules, template=Hermes(tokenizer(str(nano))))
        sampler = transformers if in_process else scripted(by_seed)
        played.append((await play_all(specs, rules, sampler))[0])
    assert played[0] == played[1]
    assert len(played[0]) == 2 * 2 * 6
