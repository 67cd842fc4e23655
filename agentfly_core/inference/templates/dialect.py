"""Find out what a chat template supports. For this purpose, short conversations are rendered."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.call_formats import FormatName, format_of
from agentfly_core.inference.templates.jinja_renderer import (
    ChatRows,
    Dialect,
    JinjaRenderer,
    common_beginning,
)
from agentfly_core.inference.templates.reasoning import ReasoningMarks, marks_of
from agentfly_core.inference.templates.variables import jinja_of
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.system.formats.json_value import JSON

# the keys under which families of models expect the reasoning of a message
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
USER, SYSTEM = {"role": "user", "content": "U0"}, {"role": "system", "content": "S0"}
REPLY: dict[str, Any] = {"role": "assistant", "content": "A0"}
SCHEMA = ToolSchema(
    "f0", "D0", {"type": "object", "properties": {"k0": {"type": "string"}}, "required": ["k0"]}
)
TOOLS: Sequence[dict[str, JSON]] = (SCHEMA.listed,)
TEXTS = ("a b", " a", "\na", "é", "▁a", "(")
"""Texts that must have the same tokens, whatever text comes before them."""


@dataclass(frozen=True, slots=True)
class Markup:
    """The markup of a chat template.

    - `dialect`: which messages the template can write, such as system messages and tool calls
    - `stop`: tokens that end a reply
    - `calls`: the format of tool calls, or "" if FORMATS does not contain the format
    - `marks`: the tags around the reasoning of a reply, such as `<think>` and `</think>`
    """

    dialect: Dialect
    stop: tuple[str, ...]
    calls: FormatName | Literal[""]
    marks: ReasoningMarks


def markup_of(
    tokenizer: PreTrainedTokenizerBase,
    variables: Mapping[str, Any],
    stop: Sequence[str],
    calls: FormatName | Literal[""],
) -> Markup:
    """Find the markup that a tokenizer's chat template writes with the template `variables`.

    Values of `stop` and `calls` that are not empty override the markup of the template.

    Raises ValueError in three cases:

    - The template ignores `add_generation_prompt`, but writes a header before each reply.
    - The template writes no end token after a reply.
    - The tokenizer encodes a text differently if another text precedes that text.
    """
    renderer = JinjaRenderer(tokenizer, variables, Dialect())
    header, prompt = _header(renderer, [USER]), renderer.render([USER], prompt=True)
    # without a header, the reply must follow the question directly, as in Mistral's template
    begins = (f"{prompt}A0", f"{prompt} A0")
    if not header and not renderer.render([USER, REPLY]).startswith(begins):
        raise ValueError(
            "template: the chat template ignores add_generation_prompt, so a prompt does not end "
            "with the header of a reply. Choose another model, or write a template for this model."
        )
    dialect = _dialect(renderer, header)
    replied = [USER, {dialect.reasoning or "role": "R0"} | REPLY]
    marks = marks_of(jinja_of(tokenizer, TOOLS), renderer.render(replied))
    called = ""
    if dialect.native:  # only the call itself, without the list of tools before it
        called = renderer.render([USER, _called(dialect, 1)], TOOLS)
        called = called[len(common_beginning(called, renderer.render([USER], TOOLS))) :]
    ends = tuple(stop) or tuple(dict.fromkeys(_ends(renderer, called)))
    if not ends:
        raise ValueError(
            "template: the chat template writes no end token after a reply. Set template.stop to "
            'the tokens that end a reply, such as ["<|user|>", "<|observation|>"].'
        )
    if any(renderer.tokens(text) != renderer.tokens(ends[0] + text)[1:] for text in TEXTS):
        raise ValueError(
            "template: this tokenizer encodes a text differently after another text, as "
            "SentencePiece does, so replies cannot be appended to a prompt. Choose another model."
        )
    native: FormatName | Literal[""] = format_of(called) if dialect.native else "hermes"
    return Markup(dialect, ends, calls or native, marks)


def _dialect(renderer: JinjaRenderer, header: str) -> Dialect:
    keys = [
        key for key in REASONING_KEYS if _writes(renderer, [USER, {**REPLY, key: "R0"}], "R0", "A0")
    ]
    native = next(_native(renderer), None)
    own = native or Dialect(native=False)
    answer = [USER, REPLY, {"role": "tool", "content": "O0"}]
    as_tool = native or (_writes(renderer, answer, "O0") and _header(renderer, answer) == header)
    return replace(
        own,
        reasoning=keys[0] if keys else "",
        answers_as_user=not as_tool,
        alternates=not _writes(renderer, [USER, USER]),
        system=_writes(renderer, [SYSTEM, USER], "S0", "U0"),
        several_calls=not native or _writes(renderer, [USER, _called(own, 2)], "v0", "v1"),
    )


def _native(renderer: JinjaRenderer) -> Iterator[Dialect]:
    """Yield the message formats in which the template can render tools, calls and tool results."""
    if not _writes(renderer, [USER], "D0", "k0", tools=TOOLS):
        return
    # some templates refuse arguments that are objects, or a content that is ""
    for as_text, empty in product((False, True), ("", None)):
        dialect = Dialect(arguments_as_text=as_text, empty=empty)
        answer = {"role": "tool", "tool_call_id": "call00000", "name": "f0", "content": "O0"}
        chat = [USER, _called(dialect, 1), answer]
        if _writes(renderer, chat, "f0", "k0", "v0", "O0", tools=TOOLS):
            yield dialect


def _called(dialect: Dialect, calls: int) -> dict[str, Any]:
    arguments = [{"k0": f"v{number}"} for number in range(calls)]
    return {
        "role": "assistant",
        "content": dialect.empty,
        "tool_calls": [
            {
                "id": f"call{number:05}",
                "type": "function",
                "function": {
                    "name": "f0",
                    "arguments": f'{{"k0": "v{number}"}}' if dialect.arguments_as_text else sent,
                },
            }
            for number, sent in enumerate(arguments)
        ],
    }


def _ends(renderer: JinjaRenderer, called: str) -> Iterator[str]:
    """Yield the token that ends a text reply, and the token that ends a tool call.

    The end token of a text reply is the first added token after the text. The end token of a tool
    call is the last added token in `called`, a rendered tool call.
    """
    replied = renderer.render([USER, REPLY])
    if ends := renderer.encoder.markup_in(replied[replied.rindex("A0") :]):
        yield ends[0][1]
        yield from [name for _, name in renderer.encoder.markup_in(called)][-1:]


def _header(renderer: JinjaRenderer, chat: ChatRows) -> str:
    prompt = renderer.render(chat, prompt=True)
    return prompt[len(common_beginning(prompt, renderer.render(chat))) :]


def _writes(
    renderer: JinjaRenderer, chat: ChatRows, *texts: str, tools: Sequence[dict[str, JSON]] = ()
) -> bool:
    """Whether the template accepts these messages and renders all strings in `texts`."""
    try:
        rendered = renderer.render(chat, tools, prompt=True)
        rendered += renderer.render(chat, tools)
    except ValueError:
        return False
    return all(text in rendered for text in texts)
