"""Parse tool calls in the formats that families of models write."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.chatml import end_of_json, hermes_calls
from agentfly_core.records.messages import CALL, CALL_END, arguments_of, call_id, call_of
from agentfly_core.records.trajectory import BadCall, ToolCall
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.json_value import JSON

FormatName = Literal[
    "hermes", "qwen3-xml", "llama3", "mistral", "mistral-args", "deepseek", "glm", "gpt-oss"
]
Schemas = Mapping[str, ToolSchema]
PlacedCall = tuple[int, int, ToolCall | BadCall]
"""A call with its position in the text: the index of its first character, the index after its last
character, and the call.
"""
_QWEN = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_GLM = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
# templates write the recipient of a call before its channel, and models after its channel
_CHANNEL = r"(?:<\|channel\|>(?:commentary|analysis))?"
_PYTHON = {"True": True, "False": False, "None": None}
"""Values that Jinja templates write in Python syntax."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A format of tool calls.

    - `sign`: a pattern. A template uses this format if the pattern occurs in a rendered call.
    - `begin`: a pattern for the text before a call. It may have the groups `name` and `id`, for the
      tool's name and the call's id.
    - `end`: the text after a call. If this text is empty, the call ends with its JSON value.
    - `read`: a function that parses the text between `begin` and `end`
    """

    sign: re.Pattern[str]
    begin: re.Pattern[str]
    end: str
    read: Callable[[str, str, Schemas], Sequence[ToolCall]]

    def calls(self, text: str, schemas: Schemas) -> Iterator[PlacedCall]:
        """Yield all calls in a text. Invalid calls become BadCall.

        `text` is a reply without its reasoning.
        """
        at = 0
        while match := self.begin.search(text, at):
            behind = end_of_json(text, match.end())
            closed = text.find(self.end, behind)
            body = text[match.end() : closed if self.end and closed >= 0 else len(text)]
            at = closed + len(self.end) if self.end and closed >= 0 else len(text)
            if not self.end:
                at = behind if behind > match.end() else len(text)
                body = text[match.end() : at]
            names = match.groupdict()
            for call in self._read(names.get("name") or "", body, schemas, closed):
                if isinstance(call, ToolCall) and "id" in names:
                    call = replace(call, id=call_id(names["id"]))
                yield match.start(), at, call

    def _read(
        self, name: str, body: str, schemas: Schemas, closed: int
    ) -> Sequence[ToolCall | BadCall]:
        if closed < 0:
            return [BadCall(body.strip(), f"{self.end} is missing")]
        try:
            if calls := self.read(name, body, schemas):
                return calls
            raise ValueError("expected a call, got none")
        except ValueError as error:
            return [BadCall(f"{name} {body}".strip(), str(error))]


def _named(name: str, body: str, schemas: Schemas) -> Sequence[ToolCall]:
    text = body.strip().removeprefix("```json").removesuffix("```").strip()
    return [ToolCall(name.strip(), arguments_of(name, strict_json.parse(text)))]


def _whole(name: str, body: str, schemas: Schemas) -> Sequence[ToolCall]:
    value = strict_json.parse(body)
    return [call_of(item) for item in (value if isinstance(value, list) else [value])]


def _llama(name: str, body: str, schemas: Schemas) -> Sequence[ToolCall]:
    call = call_of(strict_json.parse(body))
    return [ToolCall(call.name, call.arguments)]  # not lenient: `parameters` is this format's key


def _pairs(pattern: re.Pattern[str]) -> Callable[[str, str, Schemas], Sequence[ToolCall]]:
    def read(name: str, body: str, schemas: Schemas) -> Sequence[ToolCall]:
        if not (name := name.strip()):
            raise ValueError("expected the name of a tool and then its arguments")
        if rest := pattern.sub("", body).replace("</function>", "").strip():
            raise ValueError(f"expected only arguments within their tags, got {rest[:80]!r}")
        kinds = schemas[name].parameters.get("properties") if name in schemas else None
        kinds = kinds if isinstance(kinds, Mapping) else {}
        pairs = pattern.findall(body)
        keys = [key for key, _ in pairs]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise ValueError(f"the key {twice[0]!r} is given twice")
        return [ToolCall(name, {key: _value(text, kinds.get(key)) for key, text in pairs})]

    return read


def _value(text: str, schema: JSON) -> JSON:
    """Convert the text of an argument to a value.

    If the argument's schema allows null, the texts `null` and `None` become None. If the schema
    allows a string, any other text is itself the value. Otherwise, the text is parsed as JSON, or
    as Python's True, False or None. A text that cannot be parsed is itself the value.
    """
    kinds = _types(schema)
    if "null" in kinds and text in ("null", "None"):
        return None
    # "12" stays a string if the schema allows a string
    if "string" in kinds:
        return text
    if text in _PYTHON:
        return _PYTHON[text]
    try:
        return strict_json.parse(text)
    except ValueError:
        return text


def _types(schema: JSON) -> Sequence[JSON]:
    if not isinstance(schema, Mapping):
        return ()
    kind, choices = schema.get("type"), schema.get("anyOf", schema.get("oneOf"))
    own = kind if isinstance(kind, list) else [kind]
    further = choices if isinstance(choices, list) else []
    if isinstance(values := schema.get("enum"), list) and all(isinstance(v, str) for v in values):
        return ["string"]
    return [*own, *(kind for choice in further for kind in _types(choice))]


class _Hermes(CallFormat):
    def calls(self, text: str, schemas: Schemas) -> Iterator[PlacedCall]:
        return hermes_calls(text)


def _format(
    sign: str,
    begin: str,
    end: str,
    read: Callable[[str, str, Schemas], Sequence[ToolCall]],
    kind: type[CallFormat] = CallFormat,
) -> CallFormat:
    return kind(re.compile(sign), re.compile(begin), end, read)


FORMATS: Mapping[FormatName, CallFormat] = {
    "qwen3-xml": _format(
        "<function=",
        r"<tool_call>\s*(?:<function=(?P<name>[^>\n]*)>\n?)?",
        CALL_END,
        _pairs(_QWEN),
    ),
    "glm": _format(
        "<arg_key>",
        r"<tool_call>(?P<name>[^<\n]*)\n?",
        CALL_END,
        _pairs(_GLM),
    ),
    "hermes": _format(CALL, CALL, CALL_END, _whole, _Hermes),
    "gpt-oss": _format(
        r"to=functions\.",
        rf"(?:(?:<\|end\|>)?<\|start\|>assistant)?{_CHANNEL} ?to=functions\.(?P<name>[^\s<]*)"
        rf"{_CHANNEL}(?: ?(?:<\|constrain\|>)?\w+)?<\|message\|>",
        "",
        _named,
    ),
    "deepseek": _format(
        "<｜tool▁call▁begin｜>",
        r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?"
        r"(?P<name>[^<\n]*)(?:\n|<｜tool▁sep｜>)?",
        "<｜tool▁call▁end｜>",
        _named,
    ),
    "mistral-args": _format(
        r"\[ARGS\]",
        r"\[TOOL_CALLS\](?P<name>[^\[{]*)(?:\[CALL_ID\](?P<id>[^\[{]*))?(?:\[ARGS\])?",
        "",
        _named,
    ),
    "mistral": _format(r"\[TOOL_CALLS\]", r"\[TOOL_CALLS\]\s*", "", _whole),
    "llama3": _format(
        '"parameters": ',
        # the last blanks of a line only, or many empty lines would take quadratic time
        r"(?:<\|python_tag\|>\s*|(?:^|(?<=[;\n]))[^\S\n]*)"
        r'(?=\{\s*"name"\s*:\s*"[^"]*"\s*,\s*"(?:parameters|arguments)")',
        "",
        _llama,
    ),
}
"""Formats by name. `format_of` returns the first format whose pattern `sign` occurs in a call, so
more specific patterns come first.
"""


def format_of(text: str) -> FormatName | Literal[""]:
    """Return the name of the format of a rendered tool call, such as "hermes".

    Returns "" if the call has none of the formats in FORMATS.
    """
    return next((name for name, one in FORMATS.items() if one.sign.search(text)), "")
