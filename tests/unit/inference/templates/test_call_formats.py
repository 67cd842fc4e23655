"""Calls in the formats of models: values, wrong calls, and marks."""

import pytest

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.call_formats import FORMATS
from agentfly_core.records.trajectory import BadCall, ToolCall


def calls(form, text, **properties):
    """The calls of a text, to the tool `f` with these properties."""
    schemas = {"f": ToolSchema("f", "", {"type": "object", "properties": properties})}
    return [call for _, _, call in FORMATS[form].calls(text, schemas)]


def qwen(**values):
    pairs = [f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items()]
    return f"<tool_call>\n<function=f>\n{''.join(pairs)}</function>\n</tool_call>"


@pytest.mark.parametrize("begin", ["", "<|python_tag|>"])
def test_a_llama_call_may_have_a_tag(begin):
    assert calls("llama3", f'{begin}{{"name": "f", "parameters": {{"a": 1}}}}') == [
        ToolCall("f", {"a": 1})
    ]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            "qwen3-xml",
            qwen(a=1).replace("</function>", "<parameter=a>\n2\n</parameter></function>"),
        ),
        (
            "glm",
            "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
            "<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        ),
    ],
)
def test_a_key_given_twice_is_a_bad_call(form, text):
    (call,) = calls(form, text)
    assert isinstance(call, BadCall)
    assert call.fault == "the key 'a' is given twice"


@pytest.mark.parametrize("choices", ["anyOf", "oneOf"])
def test_a_value_has_a_type_of_its_schema(choices):
    schema = {choices: [{"type": "string"}, {"type": "null"}]}
    assert calls("qwen3-xml", qwen(a="12"), a=schema) == [ToolCall("f", {"a": "12"})]
    assert calls("qwen3-xml", qwen(a="null"), a=schema) == [ToolCall("f", {"a": None})]


def test_an_empty_list_of_calls_is_a_bad_call():
    (call,) = calls("mistral", "[TOOL_CALLS][]")
    assert isinstance(call, BadCall)


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json",
        "<|channel|>commentary to=functions.f",
        "<|channel|>analysis to=functions.f code",
        " to=functions.f<|channel|>commentary <|constrain|>json",
        " to=functions.f<|channel|>commentary json",
    ],
)
def test_gpt_oss_names_the_tool_before_or_behind_the_channel(header):
    text = f'<|end|><|start|>assistant{header}<|message|>{{"a": 1}}'
    assert [*FORMATS["gpt-oss"].calls(text, {})] == [(0, len(text), ToolCall("f", {"a": 1}))]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("qwen3-xml", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'),
        ("glm", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'),
        ("mistral-args", "[TOOL_CALLS]f(1)"),
        ("deepseek", '<｜tool▁call▁begin｜>f{"a": 1}<｜tool▁call▁end｜>'),
    ],
)
def test_a_marked_call_in_another_form_is_a_bad_call(form, text):
    (call,) = calls(form, text)
    assert isinstance(call, BadCall)


def test_a_mistral_call_may_lack_the_mark_of_its_arguments():
    assert calls("mistral-args", '[TOOL_CALLS]f{"a": 1}') == [ToolCall("f", {"a": 1})]
