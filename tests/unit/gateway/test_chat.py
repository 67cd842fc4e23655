"""Requests and replies in OpenAI's format, compared with the types of its client."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.gateway.chat import (
    CompletionRequest,
    RequestRefused,
    completion,
    events,
    models,
    request_of,
)
from agentfly_core.gateway.fields import FIELDS, Treatment
from agentfly_core.records.trajectory import BadCall, Message, Observation, Sampled, ToolCall
from agentfly_core.rollout.history.timeline import Reply
from docs.field_table import table

PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}}
TOOL = {
    "type": "function",
    "function": {"name": "calculator", "description": "Adds.", "parameters": PARAMETERS},
}
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "41+58?"}]}
CALL = ToolCall("calculator", {"expression": "41+58"})


def reply(message: Message, given: tuple[int, ...] = (1, 2, 3), seed: int = 10) -> Reply:
    sampled = (Sampled((7, 8), (-0.5, -0.25), 0, "length" if message.cut else "stop"),)
    return Reply(
        None, (), given, message, sampled, None, "", "", "main", 0, seed, (), "", opens=True
    )


def message(**written: Any) -> Message | Observation:
    return request_of({**ASK, "messages": [written]}).messages[0]


def test_every_field_of_the_client_is_in_the_table():
    assert CompletionCreateParamsBase.__annotations__.keys() - FIELDS.keys() == set()


def test_the_table_of_the_documentation_names_each_field_once():
    named = re.findall(r"`(\w+)(?:: [^`]*)?`", "".join(re.findall(r"^\|([^|]*)", table(), re.M)))
    assert sorted(named) == sorted(FIELDS)


def test_messages_of_each_role_are_read():
    calls = [{"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": ""}}]
    request = request_of(
        {
            "messages": [
                {"role": "developer", "content": "Add."},
                {"role": "user", "content": [{"type": "text", "text": "41+58?"}]},
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": "99"},
                {"role": "assistant", "content": "99", "reasoning_content": "I add."},
            ]
        }
    )
    assert request.messages == (
        Message("system", "Add."),
        Message("user", "41+58?"),
        Message("assistant", "", (ToolCall("calculator", {}),)),
        Observation("calculator", "99"),
        Message("assistant", "99", reasoning="I add."),
    )


@pytest.mark.parametrize("arguments", ['{"expression":"41+58"}', '{ "expression" : "41+58" }'])
def test_arguments_are_compared_by_value(arguments):
    function = {"name": "calculator", "arguments": arguments}
    calls = [{"id": "c1", "type": "function", "function": function}]
    assert message(role="assistant", tool_calls=calls) == Message("assistant", "", (CALL,))


def test_honoured_fields_become_sampling_settings():
    fields = {
        "tools": [TOOL],
        "stop": "END",
        "max_completion_tokens": 5,
        "n": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "chat_template_kwargs": {"enable_thinking": False},
        "temperature": 0.2,
        "top_p": 1.0,
        "user": None,
    }
    request = request_of({**ASK, **fields})
    schema = ToolSchema("calculator", "Adds.", PARAMETERS)
    assert request.sampling == {
        "tools": [schema],
        "stop": ["END"],
        "max_tokens": 5,
        "thinking": False,
    }
    assert (request.n, request.stream, request.include_usage, request.logprobs) == (3, *[True] * 3)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_p": 0.9}, "top_p"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"functions": []}, "functions"),
        ({"tepmerature": 1}, "tepmerature"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"chat_template_kwargs": {"date": "today"}}, "chat_template_kwargs"),
    ],
)
def test_a_refused_field_is_named(fields, param):
    with pytest.raises(RequestRefused) as refused:
        request_of({**ASK, **fields})
    assert (refused.value.status, refused.value.param) == (400, param)
    assert refused.value.body["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"messages": "hi"},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "function", "content": "99"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
        {**ASK, "tools": [{"type": "web_search"}]},
        {**ASK, "tools": 3},
        {**ASK, "stop": 3},
    ],
)
def test_a_malformed_request_is_refused(body):
    with pytest.raises(RequestRefused):
        request_of(body)


@pytest.mark.parametrize(
    ("whole", "finish"),
    [
        (Message("assistant", "99"), "stop"),
        (Message("assistant", "9", cut=True), "length"),
        (Message("assistant", "", (CALL, CALL)), "tool_calls"),
        (Message("assistant", "So", (CALL,), reasoning="I add."), "tool_calls"),
    ],
)
def test_a_completion_is_what_the_client_reads_streamed_or_not(whole, finish):
    request = CompletionRequest("m", (), {}, logprobs=True)
    completed = completion(request, [reply(whole)])
    read = ChatCompletion.model_validate(completed)
    (choice,) = read.choices
    assert choice.finish_reason == finish
    assert read.usage and (read.usage.prompt_tokens, read.usage.completion_tokens) == (3, 2)
    assert choice.logprobs and choice.logprobs.content
    assert [one.token for one in choice.logprobs.content] == ["token_id:7", "token_id:8"]
    written = choice.message.model_dump(exclude_unset=True)
    assert message(**written) == whole

    stream = ChatCompletionStreamState()
    *chunks, end = b"".join(events(completed, include_usage=True)).split(b"\n\n")[:-1]
    assert end == b"data: [DONE]"
    for chunk in chunks:
        stream.handle_chunk(ChatCompletionChunk.model_validate_json(chunk.removeprefix(b"data: ")))
    streamed = stream.current_completion_snapshot
    assert streamed.usage == read.usage
    assert message(**streamed.choices[0].message.model_dump(exclude_none=True)) == whole


def test_ids_of_calls_differ_between_replies():
    whole = Message("assistant", "", (CALL, CALL))
    completed: Any = completion(
        CompletionRequest("m", (), {}), [reply(whole, seed=1), reply(whole, seed=2)]
    )
    ids = [c["id"] for choice in completed["choices"] for c in choice["message"]["tool_calls"]]
    assert len({*ids}) == 4


def test_an_unreadable_call_is_shown_as_text():
    whole = Message("assistant", "So", (BadCall('{"name": "calc', "unterminated string"), CALL))
    completed: Any = completion(CompletionRequest("m", (), {}), [reply(whole)])
    shown = completed["choices"][0]["message"]
    assert shown["content"] == 'So\n{"name": "calc'
    assert [call["function"]["name"] for call in shown["tool_calls"]] == ["calculator"]


def test_models_are_those_of_the_client():
    assert json.dumps(models(["main", "critic"])).count('"object": "model"') == 2


def test_overruled_fields_have_no_other_effect():
    overruled = {
        name: "x" for name, rule in FIELDS.items() if rule.treatment is Treatment.OVERRULED
    }
    expected = replace(request_of(ASK), overruled=(*overruled,))
    assert request_of({**ASK, **overruled}) == expected
