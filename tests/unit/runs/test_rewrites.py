"""Rewritten histories, counted in the record of agents that send whole conversations."""

from collections.abc import Sequence

import pytest

from agentfly_core.records.trajectory import Ending, Message, ToolCall
from agentfly_core.rollout.episode import Episode
from agentfly_core.runs.metrics import history_rewrites
from agentfly_core.testing.episodes import play, rollout_spec

QUESTION, FURTHER = Message("user", "41+58?"), Message("user", "Sure?")
REPLY = Message("assistant", "99", (ToolCall("add", {"x": "1"}),))
EXAMPLES = (Message("user", "1+1?"), Message("assistant", "2"))


def said(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", text, calls)


async def shares(*conversations: Sequence[Message]) -> dict[str, float]:
    """Metrics of an episode with these full message lists, each answered by REPLY."""

    async def agent(episode: Episode) -> Ending:
        for messages in conversations:
            await episode.turn(messages)
        return Ending.NO_TOOL_CALLS

    trajectory = await play(["99<add x=1>"] * len(conversations), spec=rollout_spec(agent=agent))
    return {name: share for name, share in history_rewrites([trajectory]).items() if share}


@pytest.mark.parametrize("echo", [REPLY, said(" 99\n", *REPLY.calls)])
async def test_an_echo_is_no_rewrite(echo):
    assert await shares([QUESTION], [QUESTION, echo, FURTHER], [FURTHER]) == {}


@pytest.mark.parametrize(
    ("cause", "history"),
    [
        ("text", [QUESTION, said("98", *REPLY.calls)]),
        ("text", [QUESTION, said("")]),
        ("calls", [QUESTION, said("99")]),
        ("calls", [QUESTION, said("99", ToolCall("add", {"x": "2"}))]),
        ("earlier", [FURTHER, REPLY]),
        ("earlier", [REPLY]),
    ],
)
async def test_a_rewrite_is_counted_by_its_cause(cause, history):
    counted = await shares([QUESTION], [*history, FURTHER], [QUESTION], [QUESTION])
    assert counted == {"history_rewrites": 0.25, f"history_rewrites/{cause}": 0.25}


async def test_examples_in_the_prompt_are_no_rewrites():
    again = [*EXAMPLES, QUESTION]
    assert await shares(again, again, [*again, REPLY, FURTHER]) == {}
