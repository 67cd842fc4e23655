"""`Speaker.turn` and `Episode.branch`: replies to full message lists, in any order of time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from agentfly_core.authoring.chat_template import Conversation, ToolSchema
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Observation,
    Sampled,
    ToolCall,
    Trajectory,
)
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.rollout.history.timeline import EpisodeBranch, Reply
from agentfly_core.rollout.rules import EpisodeOver
from agentfly_core.system.formats import hashing
from agentfly_core.testing.episodes import ADD, episode_specs, play, play_all, rollout_spec
from agentfly_core.testing.letters import STOP, as_letters, encode, loss_mask
from agentfly_core.tools.calculator import calculator
from tests.support.policies import numbered

LOOK = ToolSchema("look", "Look.", {"type": "object", "properties": {}})
Items = Sequence[Message | Observation]


def user(text: str) -> Message:
    return Message("user", text)


async def played(agent: Agent, **rules: int) -> Trajectory:
    return await play(numbered, spec=rollout_spec(agent=agent, max_turns=20, **rules))


async def test_a_turn_returns_the_reply_with_its_tokens() -> None:
    replies: list[Reply] = []

    async def agent(episode: Episode) -> Ending:
        replies.append(await episode.turn(episode.opening))
        replies.append(await episode.turn([*episode.opening, replies[0].message, user("Sure?")]))
        return Ending.NO_TOOL_CALLS

    trajectory = await played(agent)
    first, second = replies
    assert (first.message.content, first.finish, first.limit) == ("r0", "stop", None)
    assert (first.tokens, len(first.logprobs)) == ((*encode("r0"), STOP), 3)
    assert second.given == tuple(encode("^uSure?$^a"))
    assert as_letters(trajectory) == "^u41+58?$^ar0$^uSure?$^ar1$"


async def test_a_turn_returns_the_reply_that_fills_the_context() -> None:
    async def agent(episode: Episode) -> Ending:
        full = await episode.turn(episode.opening)
        assert (full.message.content, full.finish, full.limit) == (
            "r",
            "length",
            Ending.MAX_MODEL_LEN,
        )
        with pytest.raises(EpisodeOver, match="max_model_len"):
            await episode.turn([*episode.opening, full.message, user("And?")])
        episode.answer(full.message.content)
        return Ending.NO_TOOL_CALLS

    trajectory = await played(agent, max_model_len=12)
    assert (trajectory.ending, trajectory.answer) == (Ending.NO_TOOL_CALLS, "r")


async def test_a_reply_that_nobody_received_is_not_trained() -> None:
    async def agent(episode: Episode) -> Ending:
        (await episode.turn(episode.opening)).trained = False
        await episode.turn(episode.opening)
        return Ending.NO_TOOL_CALLS

    trajectory = await played(agent)
    assert [as_letters(trajectory), loss_mask(trajectory)] == [
        "^u41+58?$^ar0$^u41+58?$^ar1$",
        ".........................xxx",
    ]
    assert [trajectory.trains(turn) for turn in trajectory.turns] == [False, True]


async def test_tools_are_part_of_a_conversation() -> None:
    seen: list[list[str]] = []

    async def policy(conversation: Conversation) -> str:
        seen.append([tool.name for tool in conversation.tools])
        return f"r{conversation.turn}"

    async def agent(episode: Episode) -> Ending:
        first = await episode.turn(episode.opening, tools=[LOOK])
        begun = [*episode.opening, first.message, user("Sure?")]
        assert (await episode.turn(begun)).before is None
        again = replace(LOOK, parameters=dict(LOOK.parameters))
        assert (await episode.turn(begun, tools=[again])).before is first
        other = replace(LOOK, description="Look there.")
        assert (await episode.turn(begun, tools=[other])).before is None
        return Ending.NO_TOOL_CALLS

    await play(policy, spec=rollout_spec(calculator, agent=agent, max_turns=9))
    assert seen == [["look"], ["calculator"], ["look"], ["look"]]


ECHOES = {
    "outer whitespace": Message("assistant", "\n sum ", (ToolCall("add", {"a": 1, "b": [2]}),)),
    "order and kind of numbers": Message(
        "assistant", "sum", (ToolCall("add", {"b": [2.0], "a": 1.0}),)
    ),
    "other reasoning": Message(
        "assistant", "sum", (ToolCall("add", {"a": 1, "b": [2]}),), reasoning="?"
    ),
}
REWRITES = {
    "text": Message("assistant", "sums", (ToolCall("add", {"a": 1, "b": [2]}),)),
    "inner whitespace": Message("assistant", "s um", (ToolCall("add", {"a": 1, "b": [2]}),)),
    "argument": Message("assistant", "sum", (ToolCall("add", {"a": 2, "b": [2]}),)),
    "a truth for a number": Message("assistant", "sum", (ToolCall("add", {"a": True, "b": [2]}),)),
    "name": Message("assistant", "sum", (ToolCall("sub", {"a": 1, "b": [2]}),)),
    "no calls": Message("assistant", "sum"),
    "role": Message("user", "sum"),
}


def replied(read: Items, message: Message, call: int = 0, before: Reply | None = None) -> Reply:
    return Reply(
        before=before,
        read=tuple(read),
        given=(),
        message=message,
        sampled=(),
        temperature=None,
        state="",
        prompt="",
        speaker="agent",
        call=call,
        seed=call,
        place=(call,),
        form="f",
    )


SAID = Message("assistant", "sum", (ToolCall("add", {"a": 1, "b": [2]}),), reasoning="Hm.")


def echoed(echo: Message, reply: Message = SAID) -> bool:
    branch, first = EpisodeBranch(), replied([user("1+2?")], reply)
    branch.add(first)
    pair = branch.longest_beginning("agent", "f", [user("1+2?"), echo, user("So?")])
    assert pair in [(first, 2), (None, 0)]
    return pair[0] is first


@pytest.mark.parametrize("name", ECHOES)
def test_a_reply_is_recognised_in_what_a_client_makes_of_it(name: str) -> None:
    assert echoed(ECHOES[name])


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewritten_reply_is_another_conversation(name: str) -> None:
    assert not echoed(REWRITES[name])


def test_an_unreadable_call_is_recognised_in_the_text() -> None:
    reply = Message("assistant", "Sum:", (BadCall("add(1", "no closing bracket"),))
    assert echoed(Message("assistant", "Sum:\nadd(1"), reply)


def test_the_longest_beginning_and_its_earliest_reply_count() -> None:
    branch, opening = EpisodeBranch(), [user("1+2?")]
    late, early = replied(opening, SAID, call=1), replied(opening, SAID, call=0)
    longer = replied([user("So?")], Message("assistant", "3"), call=2, before=late)
    for reply in (late, early, longer):
        branch.add(reply)
    begun = [*opening, SAID, user("So?")]
    assert branch.longest_beginning("agent", "f", begun) == (early, 2)
    begun += [Message("assistant", "3")]
    assert branch.longest_beginning("agent", "f", begun) == (longer, 4)
    assert branch.longest_beginning("critic", "f", begun) == (None, 0)
    assert branch.longest_beginning("agent", "f", [user("1+3?"), *begun[1:]]) == (None, 0)


def conducted(
    order: Sequence[str],
) -> Callable[[Conversation], Awaitable[str]]:
    """A policy that replies to concurrent prompts in this order, each with its seed."""
    passed = {text: asyncio.Event() for text in order}

    async def policy(conversation: Conversation) -> str:
        text = conversation.messages[-1].content
        if text in passed:
            if place := order.index(text):
                await passed[order[place - 1]].wait()
            passed[text].set()
        return str(conversation.seed % 10_000)

    return policy


async def concurrent(order: Sequence[str]) -> dict[str, str]:
    """Replies to three requests at once, the second of which is the opening."""
    replies: dict[str, str] = {}

    async def agent(episode: Episode) -> Ending:
        async def request(messages: Items) -> None:
            async with episode.branch():
                replies[messages[-1].content] = (await episode.turn(messages)).message.content

        requests = [[user("A?")], episode.opening, [user("B?")]]
        await asyncio.gather(*map(request, requests))
        await request([user("C?")])
        return Ending.NO_TOOL_CALLS

    trajectory = await play(conducted(order), spec=rollout_spec(agent=agent, max_turns=9))
    assert [turn.call for turn in trajectory.turns] == [0, 0, 0, 1]
    return replies


async def test_seeds_of_concurrent_branches_follow_from_prompts() -> None:
    one = await concurrent(["A?", "41+58?", "B?"])
    other = await concurrent(["B?", "41+58?", "A?"])
    assert one == other and len({*one.values()}) == 4
    assert one["41+58?"] == str(hashing.seed(episode_specs(ADD)[0].seed, 0) % 10_000)


async def test_equal_requests_at_the_same_time_are_different_samples() -> None:
    seeds: list[int] = []

    async def policy(conversation: Conversation) -> str:
        seeds.append(conversation.seed)
        return "ok"

    async def agent(episode: Episode) -> Ending:
        async def request() -> None:
            async with episode.branch():
                await episode.turn([user("A?")])

        await asyncio.gather(request(), request())
        await request()
        return Ending.NO_TOOL_CALLS

    trajectory = await play(policy, spec=rollout_spec(agent=agent, max_turns=9))
    assert len({*seeds}) == 3
    assert loss_mask(trajectory).count("x") == 9


async def test_what_continues_the_opening_has_seeds_of_its_numbers() -> None:
    seeds: dict[str, int] = {}

    async def policy(conversation: Conversation) -> str:
        seeds[conversation.messages[-1].content] = conversation.seed
        return "ok"

    async def agent(episode: Episode) -> Ending:
        await episode.context(user("Aside?")).reply()
        await episode.reply(*episode.opening)
        await episode.speaker("critic").reply(user("Right?"))
        await episode.reply(user("Sure?"))
        return Ending.NO_TOOL_CALLS

    await play(policy, spec=rollout_spec(agent=agent, max_turns=9))
    own = episode_specs(ADD)[0].seed
    assert [seeds["41+58?"], seeds["Sure?"]] == [hashing.seed(own, 0), hashing.seed(own, 1)]
    assert len({*seeds.values()}) == 4


async def test_a_branch_continues_from_all_replies_before_it() -> None:
    async def agent(episode: Episode) -> Ending:
        opened = asyncio.Event()

        async def first() -> None:
            async with episode.branch():
                reply = await episode.turn(episode.opening)
            async with episode.branch():
                again = await episode.turn([*episode.opening, reply.message, user("Sure?")])
            assert again.before is reply
            opened.set()

        async def second() -> None:
            async with episode.branch():
                await opened.wait()
                await episode.turn([user("Something else.")])

        await asyncio.gather(first(), second())
        await episode.reply_to([user("Last.")])
        return Ending.NO_TOOL_CALLS

    trajectory = await played(agent)
    assert [turn.call for turn in trajectory.turns] == [0, 0, 1, 2]
    assert len({turn.context for turn in trajectory.turns}) == 3


async def test_a_reply_outside_of_open_branches_is_refused() -> None:
    async def agent(episode: Episode) -> Ending:
        async with episode.branch():
            await episode.reply(*episode.opening)
            aside = asyncio.create_task(outside(episode))
            await aside
        return Ending.NO_TOOL_CALLS

    async def outside(episode: Episode) -> None:
        from agentfly_core.rollout.episode_state import current_branch

        current_branch.set(None)
        with pytest.raises(ValueError, match=r"async with episode.branch\(\):"):
            await episode.reply(user("A?"))

    assert len((await played(agent)).turns) == 1


class Batches(TransformersSampler):
    """Replies "ok" and keeps the size of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def reply(self, requests: Sequence[Request]) -> list[Sampled]:
        self.sizes.append(len(requests))
        tokens = (*encode("ok"), STOP)
        return [Sampled(tokens, (0.0,) * len(tokens), 7, "stop") for _ in requests]


async def test_a_batch_waits_for_a_request_of_each_open_branch() -> None:
    async def agent(episode: Episode) -> Ending:
        async def request(text: str) -> None:
            async with episode.branch():
                await episode.turn([user(text)])

        await asyncio.gather(*map(request, "AB"))
        await request("C")
        await episode.turn([user("D")])
        return Ending.NO_TOOL_CALLS

    sampler = Batches()
    spec = rollout_spec(agent=agent, max_turns=9)
    await play_all(episode_specs(ADD, chains=2), spec, sampler)
    assert sampler.sizes == [4, 2, 2]
