"""Tokenizers with the chat templates of model families, on Qwen's vocabulary or their own."""

import copy
import json
import re
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.chatml import TOOLS as LIST
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.records.messages import reply_text
from agentfly_core.records.trajectory import Message, Observation, ToolCall
from tests.support.real_tokenizers import of_deepseek, of_mistral, of_npm
from tests.support.tokenizers import like_qwen, like_qwen3_5

FOLDER = Path(__file__).parents[1] / "fixtures" / "chat_templates"
MARKUP = re.compile(
    r"<\|[a-z_]+\|>|<｜[^｜>\n]+｜>|<(?:start|end)_of_turn>|</?think>|</?tool_call>|</?tool_response>"
)
OWN = "-own"
"""Behind the name of a family: with its own vocabulary, from a package of npm."""
PACKAGES = {
    "gemma3": ("gemma3", "<bos>", "<end_of_turn>"),
    "llama3": ("llama3_1", "<|begin_of_text|>", "<|eot_id|>"),
    "llama3_1": ("llama3_1", "<|begin_of_text|>", "<|eot_id|>"),
    "gptoss": ("gptoss", "<|startoftext|>", "<|return|>"),
}
"""Packages of `make tokenizers` with the first and the last token of a text."""
KEYS = {"gptoss": "thinking"}
"""The keys of reasoning, if not `reasoning_content`."""
OPTIONS: dict[str, dict[str, Any]] = {
    "glm4moe": {"stop": ("<|user|>", "<|observation|>")},
    "llama3_2": {"date": "2026-01-31"},
    "gptoss": {"date": "2026-01-31"},
}
FAMILIES = sorted(path.stem for path in FOLDER.glob("*.jinja"))
NATIVE = (
    "qwen2_5",
    "qwen3",
    "qwen3_5_think",
    "llama3_1",
    "glm4moe",
    "gptoss",
    "nemotron_3_nano",
    "mistral",
    "llama3_1-own",
    "gptoss-own",
)
HERMES = (
    "llama3",
    "gemma3",
    "deepseek_r1_distill",
    "deepseekv3",
    "phi3",
    "llama3-own",
    "gemma3-own",
)
WITHOUT_TEXT = ("llama3_1", "llama3_2", "gptoss", "mistral")
"""Families whose templates leave out the text of a reply with a call."""
TOOLS = (
    ToolSchema(
        "search",
        "Find a page.",
        {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "filters": {"type": "object"},
            },
            "required": ["text"],
        },
    ),
)
WORDS = (
    "sum",
    "é",
    "🙂 b",
    "\n",
    "\n\n x",
    " a  b",
    '"q"',
    "{1: [2]}",
    "<b>",
    "1234",
    "it's",
    "\t",
)


@cache
def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """A family's own tokenizer, else Qwen's with all added tokens of the template."""
    if family == "mistral":
        return of_mistral()
    text = (FOLDER / f"{plain(family)}.jinja").read_text()
    if family == "deepseekv3" or family.endswith(OWN):
        own = of_deepseek() if family == "deepseekv3" else of_npm(*PACKAGES[plain(family)])
        tokenizer = copy.copy(own)  # families may share a tokenizer
        tokenizer.chat_template = text
        return tokenizer
    tokenizer = like_qwen3_5() if family.startswith("qwen3_5") else like_qwen()
    tokenizer.add_tokens(
        [
            AddedToken(name, normalized=False, special=name[1] in "|｜")
            for name in dict.fromkeys(MARKUP.findall(text))
        ]
    )
    tokenizer.add_special_tokens({"bos_token": "<|begin_of_text|>"})
    tokenizer.chat_template = text
    return tokenizer


def plain(family: str) -> str:
    """The name of a family's template."""
    return family.removesuffix(OWN)


@cache
def template_of(family: str) -> ModelTemplate:
    """The template of a family for these tools."""
    return ModelTemplate(tokenizer_of(family), **OPTIONS.get(plain(family), {})).bound(TOOLS, None)


def some_text(draw: Random, words: tuple[str, ...] = WORDS) -> str:
    """Some words, in part with line breaks at the ends."""
    return "".join(draw.choice(words) for _ in range(draw.randint(1, 5)))


def some_call(draw: Random, words: tuple[str, ...] = WORDS) -> ToolCall:
    """A call with a text, a number and a nested object, and an id."""
    inner = {"k": [some_text(draw, words), None, True], "n": draw.random() < 0.5}
    arguments = {"text": some_text(draw, words), "count": draw.randint(-5, 5), "filters": inner}
    keys = [key for key in arguments if key == "text" or draw.random() < 0.5]
    name = "".join(draw.choices("abcXYZ019", k=9))
    return ToolCall("search", {key: arguments[key] for key in keys}, id=name)


def some_turns(
    draw: Random, thinks: bool, words: tuple[str, ...] = WORDS
) -> list[Message | Observation]:
    """A question, replies with calls and answers, and a last reply."""
    turns: list[Message | Observation] = [Message("user", some_text(draw, words))]
    for _ in range(draw.randint(0, 2)):
        thought = some_text(draw, words).strip() if thinks and draw.random() < 0.5 else ""
        call = some_call(draw, words)
        turns += [
            Message("assistant", "", (call,), reasoning=thought),
            Observation("search", some_text(draw, words)),
        ]
    return [*turns, Message("assistant", some_text(draw, words))]


def some_conversation(draw: Random, words: tuple[str, ...] = WORDS) -> list[Message | Observation]:
    """One to three questions with their replies, which ends with a question or an answer."""
    first = [Message("system", some_text(draw, words))] if draw.random() < 0.3 else []
    turns = [item for _ in range(draw.randint(0, 2)) for item in some_turns(draw, True, words)]
    return [*first, *turns, *some_turns(draw, True, words)[:-1]]


def request_of(family: str, messages: Sequence[Message | Observation]) -> list[dict[str, Any]]:
    """The messages as a client sends them to a chat server."""
    rows: list[dict[str, Any]] = []
    ids = deque[str]()
    for item in messages:
        if isinstance(item, Observation):
            row = {"role": "tool", "tool_call_id": ids.popleft(), "content": item.content}
        else:
            row = {"role": item.role, "content": item.content}
            if item.reasoning:
                row[KEYS.get(plain(family), "reasoning_content")] = item.reasoning
            if calls := [call for call in item.calls if isinstance(call, ToolCall)]:
                ids.extend(call.id for call in calls)
                row["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": dict(call.arguments)},
                    }
                    for call in calls
                ]
        rows.append(row)
    return rows


def hermes_request(family: str, messages: Sequence[Message | Observation]) -> list[dict[str, Any]]:
    """The same with TOOLS, calls and answers as Hermes text."""
    listed = "\n".join(json.dumps(tool.listed) for tool in TOOLS)
    rows = [{"role": "system", "content": LIST.format(signatures=listed)}]
    for item in messages:
        if isinstance(item, Observation):
            answer = f"<tool_response>\n{item.content}\n</tool_response>"
            as_tool = plain(family) == "llama3"
            rows.append(
                {"role": "tool", "content": item.content}
                if as_tool
                else {"role": "user", "content": answer}
            )
        elif item.role == "system":
            rows[0]["content"] = f"{item.content}\n\n{rows[0]['content']}"
        else:
            rows.append({"role": item.role, "content": reply_text(item)})
    if plain(family) != "gemma3":
        return rows
    runs = [(role, [*run]) for role, run in groupby(rows, lambda row: row["role"])]
    return [
        {"role": role, "content": "\n\n".join(row["content"] for row in run)} for role, run in runs
    ]


def served(
    family: str, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema] = TOOLS
) -> list[int]:
    """The tokens of the prompt at a chat server."""
    return rendered(family, request_of(family, messages), tools)


def rendered(
    family: str, chat: Sequence[dict[str, Any]], tools: Sequence[ToolSchema] = ()
) -> list[int]:
    """The tokens that transformers gives to a request, on 31 January 2026."""
    given = {}
    if "date" in OPTIONS.get(plain(family), {}):
        given["strftime_now"] = lambda form: {"%d %b %Y": "31 Jan 2026"}.get(form, "2026-01-31")
    tokens: list[int] = tokenizer_of(family).apply_chat_template(
        [*chat],
        tools=[tool.listed for tool in tools] or None,
        add_generation_prompt=True,
        return_dict=False,
        **given,
    )
    return tokens
