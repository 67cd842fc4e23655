from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from agentfly_core.authoring import author_loops
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.scripted import Scripted
from agentfly_core.records.trajectory import Ending, Message, Problem, Sampled, ToolCall
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.testing.letters import STOP, as_letters, encode, loss_mask
from agentfly_core.tools.calculator import calculator


def request(max_tokens: int) -> Request:
    conversation = Conversation(Problem("add", "41+58"), 2, 1, (), (), seed=0)
    return Request(encode("41+58"), SamplingParams(1.0, max_tokens, (STOP,)), conversation)


async def in_order(conversation: Conversation) -> str:
    return " ".join(map(str, conversation.order))


async def counting(conversation: Conversation) -> str:
    return "12345"


async def test_a_scripted_reply_ends_with_the_stop_token_and_is_certain() -> None:
    sampler = Scripted(encode, STOP, in_order)
    assert await sampler.sample(request(100)) == Sampled(encode("add 2 1$"), (0.0,) * 8, -1, "stop")


async def test_a_scripted_reply_is_cut_like_a_models() -> None:
    sampler = Scripted(encode, STOP, counting)
    assert await sampler.sample(request(5)) == Sampled(encode("12345"), (0.0,) * 5, -1, "length")
    assert (await sampler.sample(request(6))).finish == "stop"


async def test_a_loaded_policy_labels_what_follows() -> None:
    sampler = Scripted(encode, STOP, counting)
    sampler.load(Path("nowhere"), 7)
    assert (await sampler.sample(request(5))).policy_version == 7


async def test_demonstrations_are_episodes_played_from_a_script() -> None:
    answers = {"add-1": "1+2", "add-2": "3+4"}

    async def policy(conversation: Conversation) -> str | Message:
        if conversation.turn == 1:
            return f"={conversation.messages[-1].content}"
        call = ToolCall("calculator", {"expression": answers[conversation.problem.id]})
        return Message("assistant", "", (call,))

    problems = [Problem("add-2", "3+4?"), Problem("add-1", "1+2?")]
    first, second = (
        await play_all(episode_specs(*problems), rollout_spec(calculator), scripted(policy))
    )[0]
    assert as_letters(first) == "^u1+2?$^a<calculator expression:%221%2B2%22>$^t3$^a=3$"
    assert [as_letters(second), loss_mask(second)] == [
        "^u3+4?$^a<calculator expression:%223%2B4%22>$^t7$^a=7$",
        ".........xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx......xxx",
    ]


@pytest.mark.parametrize("said", [None, 99, ["99"]])
async def test_a_policy_that_returns_neither_text_nor_a_message_is_told_so(said: object) -> None:
    async def policy(conversation: Conversation) -> object:
        return said

    sampler = scripted(policy)  # type: ignore[arg-type]
    with pytest.raises(EpisodeBroken, match=r"policy returned .*, expected text or a Message"):
        await play_all(episode_specs(ADD), rollout_spec(), sampler)


async def test_an_error_in_a_policy_is_told_with_its_line() -> None:
    async def policy(conversation: Conversation) -> str:
        return str(conversation.problem.facts["colour"])

    with pytest.raises(
        EpisodeBroken, match=r"KeyError: 'colour'\nLook at .*test_scripted.py:\d+ in"
    ):
        await play_all(episode_specs(ADD), rollout_spec(), scripted(policy))


async def test_a_policy_that_waits_for_ever_costs_one_episode() -> None:
    async def policy(conversation: Conversation) -> str:
        if conversation.chain == 1:
            await asyncio.Event().wait()
        return "ok"

    rules = rollout_spec(deadline=0.2)
    played, *_ = await play_all(episode_specs(ADD, chains=3), rules, scripted(policy))
    assert [t.ending for t in played] == [
        Ending.NO_TOOL_CALLS,
        Ending.FAILED,
        Ending.NO_TOOL_CALLS,
    ]


async def test_a_policy_that_blocks_is_named_and_the_next_episodes_can_be_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(author_loops, "STEP_SECONDS", 0.3)
    released = threading.Event()

    async def blocks(conversation: Conversation) -> str:
        released.wait(30)
        return "ok"

    try:
        (played,), *_ = await play_all(episode_specs(ADD), rollout_spec(), scripted(blocks))
        assert played.ending is Ending.FAILED
        assert "The policy blocks held the event loop for" in str(played.error)
        (again,), *_ = await play_all(episode_specs(ADD), rollout_spec(), scripted(saying("ok")))
        assert again.ending is Ending.NO_TOOL_CALLS
    finally:
        released.set()
