import asyncio
from pathlib import Path

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.scripted import NoReply, Scripted, ScriptedPolicy
from agentfly_core.records.trajectory import Ending, Message, Problem, Sampled, ToolCall
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
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


async def test_a_scripted_reply_has_a_stop_token_and_logprob_zero() -> None:
    sampler = Scripted(encode, STOP, in_order)
    assert await sampler.sample(request(100)) == Sampled(encode("add 2 1$"), (0.0,) * 8, -1, "stop")


async def test_a_scripted_reply_is_cut_at_the_token_limit() -> None:
    sampler = Scripted(encode, STOP, counting)
    assert await sampler.sample(request(5)) == Sampled(encode("12345"), (0.0,) * 5, -1, "length")
    assert (await sampler.sample(request(6))).finish == "stop"


async def test_a_loaded_policy_labels_later_replies() -> None:
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


@pytest.mark.parametrize("reply", [None, 99, ["99"]])
async def test_a_policy_must_return_text_or_a_message(reply: object) -> None:
    async def policy(conversation: Conversation) -> object:
        return reply

    sampler = scripted(policy)  # type: ignore[arg-type]
    with pytest.raises(NoReply, match=r"returned .*, expected text") as caught:
        await play_all(episode_specs(ADD), rollout_spec(), sampler)
    assert str(caught.value).endswith(f"Look at {__file__}:{policy.__code__.co_firstlineno}.")


async def coloured(conversation: Conversation) -> str:
    return str(conversation.problem.facts["colour"])


async def test_an_error_in_a_policy_has_its_file_and_line() -> None:
    with pytest.raises(NoReply) as caught:
        await play_all(episode_specs(ADD), rollout_spec(), scripted(coloured))
    line = coloured.__code__.co_firstlineno + 1
    first, place, code, *_, fault, where = str(caught.value).splitlines()
    assert [first, place, code, fault, where] == [
        f"The policy {__name__}:coloured raised an error in its reply 1 to the problem "
        "'add-41-58' (conversation.chain: 0):",
        f'  File "{__file__}", line {line}, in coloured',
        '    return str(conversation.problem.facts["colour"])',
        "KeyError: 'colour'",
        f"Look at {__file__}:{line} in coloured.",
    ]


def makes(step: int) -> ScriptedPolicy:
    async def policy(conversation: Conversation) -> str:
        return str(1 // step)

    return policy


async def test_an_error_names_the_function_that_made_the_policy() -> None:
    with pytest.raises(
        NoReply, match=rf"(?s)^The policy {__name__}:makes raised .*ZeroDivisionError"
    ):
        await play_all(episode_specs(ADD), rollout_spec(), scripted(makes(0)))


async def test_the_reason_of_a_missing_reply_is_reported() -> None:
    async def policy(conversation: Conversation) -> str:
        raise NoReply("Nothing fits; give the tool examples.")

    with pytest.raises(NoReply) as caught:
        await play_all(episode_specs(ADD), rollout_spec(), scripted(policy))
    assert str(caught.value) == "Nothing fits; give the tool examples."


async def test_an_endless_wait_of_a_policy_fails_one_episode() -> None:
    async def policy(conversation: Conversation) -> str:
        if conversation.chain == 1:
            await asyncio.Event().wait()
        return "ok"

    rules = rollout_spec(deadline=3.0)
    played, *_ = await play_all(episode_specs(ADD, chains=3), rules, scripted(policy))
    assert [t.ending for t in played] == [
        Ending.NO_TOOL_CALLS,
        Ending.FAILED,
        Ending.NO_TOOL_CALLS,
    ]


async def test_a_list_with_too_few_replies_is_reported() -> None:
    call = ToolCall("calculator", {"expression": "1+2"})
    with pytest.raises(NoReply, match=r"reply 2, .* has 1: .*max_turns=1"):
        await play([call], spec=rollout_spec(calculator))
