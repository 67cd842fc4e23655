"""Conversations as transformers renders them by the template of ChatML."""

from dataclasses import asdict
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.trajectory import Message, Observation, ToolCall
from tests.support.chatml import ADD, ADD_TEXT, CALCULATOR

SEARCH = ToolSchema(
    "search",
    'Says "no" where <nothing> is found, & 100 % of the time in café.',
    {"type": "object", "properties": {"words": {"type": "array", "items": {"type": "string"}}}},
)
OPENING = [Message("user", "What is 41+58?")]
PLAYED = [
    Message("assistant", "", (ADD,)),
    Observation("calculator", "99"),
    Message("assistant", "Let me see.", (ADD, ToolCall("search", {"words": ["ça", "<b>"]}))),
    Observation("calculator", "99"),
    Observation("search", "No product.\nNone."),
    Message("user", "Sure?"),
    Message("assistant", "It is 99."),
    Message("system", "Now be polite."),
    Message("user", "Well?"),
]


def of_transformers(item: Message | Observation) -> dict[str, Any]:
    if isinstance(item, Observation):
        return {"role": "tool", "name": item.tool, "content": item.content}
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in item.calls
        if isinstance(call, ToolCall)
    ]
    message = {"role": item.role, "content": item.content}
    return {**message, "tool_calls": calls} if calls else message


def rendered(
    tokenizer: PreTrainedTokenizerBase,
    messages: list[Message | Observation],
    tools: list[ToolSchema],
    show_tools: bool,
) -> list[int] | str:
    """Check that transformers and Hermes render the same text; return its tokens."""
    template = Hermes(tokenizer, show_tools)
    rendered_messages, listed = (
        list(map(of_transformers, messages)),
        list(map(of_openai, tools)) or None,
    )
    text, tokens = (
        tokenizer.apply_chat_template(
            rendered_messages,
            tools=listed,
            chat_template=template.jinja,
            add_generation_prompt=True,
            return_dict=False,
            tokenize=tokenize,
        )
        for tokenize in (False, True)
    )
    assert tokenizer.decode(list(template.open(messages, tools))) == text
    return tokens


def of_openai(tool: ToolSchema) -> dict[str, Any]:
    return {"type": "function", "function": asdict(tool)}


SYSTEMS = ([], [Message("system", "")], [Message("system", "Be brief.")])
TOOLS = ([], [CALCULATOR], [CALCULATOR, SEARCH])


@pytest.mark.parametrize("show_tools", [True, False])
@pytest.mark.parametrize("tools", TOOLS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_transformers_renders_the_trained_opening(
    tokenizer: PreTrainedTokenizerBase,
    system: list[Message],
    tools: list[ToolSchema],
    show_tools: bool,
) -> None:
    messages = [*system, *OPENING]
    opened = Hermes(tokenizer, show_tools).open(messages, tools)
    assert rendered(tokenizer, messages, tools, show_tools) == list(opened)


@pytest.mark.slow
@pytest.mark.parametrize("tools", TOOLS)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("turns", [1, 2, 3, 5, len(PLAYED)])
def test_transformers_renders_the_trained_replies(
    of_smollm2: PreTrainedTokenizerBase,
    turns: int,
    system: list[Message],
    tools: list[ToolSchema],
) -> None:
    messages = [*system, *OPENING, *PLAYED[:turns]]
    opened = Hermes(of_smollm2).open(messages, tools)
    assert rendered(of_smollm2, messages, tools, True) == list(opened)


def test_joined_line_breaks_keep_the_text(
    of_nano: PreTrainedTokenizerBase,
) -> None:
    messages = [*OPENING, *PLAYED]
    tokens = rendered(of_nano, messages, [CALCULATOR], True)
    assert tokens != list(Hermes(of_nano).open(messages, [CALCULATOR]))


def test_arguments_that_are_text_are_rendered_unchanged(
    of_nano: PreTrainedTokenizerBase,
) -> None:
    call = {"function": {"name": "calculator", "arguments": '{"expression": "41+58"}'}}
    conversation = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    jinja = Hermes(of_nano).jinja
    rendered = of_nano.apply_chat_template(conversation, chat_template=jinja, tokenize=False)
    assert rendered == f"<|im_start|>assistant\n{ADD_TEXT}<|im_end|>\n"
