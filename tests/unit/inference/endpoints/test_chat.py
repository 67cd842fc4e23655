"""Requests to a chat service and its answers."""

import json
from typing import Any

import pytest

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.endpoints.chat import (
    ChatRequest,
    reply_of,
    tokens_of,
)
from agentfly_core.records.trajectory import BadCall, Message, Observation, ToolCall
from tests.support.chat_service import completion

SUM = ToolCall("calculator", {"expression": "41+58"})
SCHEMA = ToolSchema("calculator", "Work out an expression.", {"type": "object"})


def answer(*words: Any, **choice: Any) -> Any:
    return json.loads(completion(*words, **choice)[2])


def test_tool_results_have_the_ids_of_their_calls() -> None:
    request = ChatRequest(
        (
            Message("user", "What is 41+58?"),
            Message("assistant", "Let me see.", (SUM, SUM)),
            Observation("calculator", "99"),
            Observation("calculator", "99", error=True),
            Observation("clock", "It is noon."),
        ),
        (SCHEMA,),
        temperature=0.5,
        max_tokens=8,
        stop=("\n",),
    )
    function = {"name": "calculator", "arguments": '{"expression": "41+58"}'}
    assert request.body() == {
        "messages": [
            {"role": "user", "content": "What is 41+58?"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {"id": "call_1_0", "type": "function", "function": function},
                    {"id": "call_1_1", "type": "function", "function": function},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1_0", "content": "99"},
            {"role": "tool", "tool_call_id": "call_1_1", "content": "99"},
            {"role": "user", "content": "It is noon."},
        ],
        "temperature": 0.5,
        "max_tokens": 8,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "calculator",
                    "description": "Work out an expression.",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "stop": ["\n"],
    }


def test_a_reply_has_text_calls_and_finish_reason() -> None:
    reply = reply_of(answer("", ("calculator", '{"expression": "41+58"}')))
    assert (reply, reply.cut) == (Message("assistant", "", (SUM,)), False)
    cut = reply_of(answer("It is 9", finish_reason="length"))
    assert (cut.content, cut.cut) == ("It is 9", True)
    assert tokens_of(answer("99")) == 10


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ({"name": "look", "arguments": {"key": 1}}, {"key": 1}),
        ({"name": "look", "arguments": None}, {}),
        ({"name": "look"}, {}),
    ],
)
def test_arguments_can_be_an_object_or_missing(function: Any, arguments: Any) -> None:
    message = {"content": None, "tool_calls": [{"function": function}]}
    reply = reply_of({"choices": [{"message": message}]})
    assert reply.calls == (ToolCall("look", arguments),)


def test_unreadable_arguments_are_a_bad_call() -> None:
    reply = reply_of(answer("", ("calculator", '{"expression": ')))
    (call,) = reply.calls
    assert isinstance(call, BadCall)
    assert "calculator" in call.text
    sent: Any = ChatRequest((reply, Observation("unreadable", "no", True))).body()
    function = sent["messages"][0]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"text": call.text}


@pytest.mark.parametrize(
    "broken", [{}, [], None, {"choices": []}, {"choices": [{"message": {"content": 7}}]}]
)
def test_an_answer_without_a_message_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError):
        reply_of(broken)


@pytest.mark.parametrize("total", [-1_000_000_000, 0, -1e9, 10.0, True, "10", None, [10]])
def test_an_invalid_token_count_is_ignored(total: Any) -> None:
    assert tokens_of({"usage": {"total_tokens": total}}) == 0
