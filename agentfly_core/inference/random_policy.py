"""The policy `random`: each turn a random call of a tool."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from math import ceil, floor, inf
from typing import Any, Never

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.import_path import at
from agentfly_core.inference.scripted import NoReply
from agentfly_core.records.trajectory import Message, ToolCall
from agentfly_core.system.formats.json_value import JSON

LITERALS = ("", "a", "A", "0", "1", "42", "-1", "3.5", "yes", "hello", "a-b", "a_b", "ab1", "1 2 3")
FORMATS = {
    "date": "2026-11-20",
    "date-time": "2026-11-20T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1DT2H",
    "uuid": "7f2c01d4-e5a6-47c8-9f2c-01d4e5a6b7c8",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "json-string": "1",
}
TRIES = 50
"""Draws of distinct items or keys."""


async def random_policy(conversation: Conversation) -> str | Message:
    """Call a random tool with random arguments of its schema; without tools return three words.

    Texts are words of the conversation, short literals and the schema's examples. The seed of the
    conversation determines the reply. Raises NoReply if nothing fits.
    """
    draw = random.Random(conversation.seed)
    words = [word for item in conversation.messages for word in item.content.split()] or ["a"]
    if not conversation.tools:
        return " ".join(draw.choices(words, k=3))
    tool = draw.choice(conversation.tools)
    try:
        arguments = _value(tool.parameters, draw, words)
    except ValueError as error:
        raise NoReply(
            f"The policy random finds no call of the tool {tool.name!r}: {error} Give the "
            "parameter examples, `Annotated[..., Field(examples=[...])]`, or play a policy of your "
            "own, --policy my_file:policy."
        ) from None
    assert isinstance(arguments, dict)
    return Message("assistant", "", (ToolCall(tool.name, arguments),))


def _value(schema: Mapping[str, Any] | bool, draw: random.Random, words: Sequence[str]) -> JSON:
    """A value of a JSON schema without references; raises ValueError if nothing fits."""
    if isinstance(schema, bool):  # True allows everything
        return _text({}, draw, words)
    if choices := [schema["const"]] if "const" in schema else schema.get("enum"):
        return draw.choice(choices)  # type: ignore[no-any-return]
    if options := schema.get("anyOf", schema.get("oneOf")):
        if any(option.get("type") == "number" for option in options):  # or a decimal has any text
            options = [option for option in options if option.get("type") != "string"]
        return _value(draw.choice(options), draw, words)
    match schema.get("type", "string"):
        case list(kinds):
            return _value({**schema, "type": draw.choice(kinds)}, draw, words)
        case "object":
            return _object(schema, draw, words)
        case "array":
            return _array(schema, draw, words)
        case "string":
            return _text(schema, draw, words)
        case "integer" | "number":
            return _number(schema, draw)
        case kind:
            return draw.random() < 0.5 if kind == "boolean" else None


def _object(schema: Mapping[str, Any], draw: random.Random, words: Sequence[str]) -> JSON:
    required, properties = schema.get("required", ()), schema.get("properties", {})
    values: dict[str, JSON] = {}
    for key, inner in properties.items():
        if key in required or draw.random() < 0.5:
            with at(key):
                values[key] = _value(inner, draw, words)
    least = schema.get("minProperties", 0)
    further = schema.get("additionalProperties", least > len(values))
    count = 0 if further is False else _count(schema, "Properties", len(values), draw)
    for _ in range(TRIES + count):
        if len(values) >= count:
            break
        key = str(_value(schema.get("propertyNames", {}), draw, words))
        values.setdefault(key, _value(further, draw, words))
    return values if len(values) >= least else _refuse(schema)


def _array(schema: Mapping[str, Any], draw: random.Random, words: Sequence[str]) -> JSON:
    values = [_value(item, draw, words) for item in schema.get("prefixItems", ())]
    items = schema.get("items", True)
    count = 0 if items is False else _count(schema, "Items", len(values), draw)
    for _ in range(TRIES + count):
        if len(values) >= count:
            break
        item = _value(items, draw, words)
        if not schema.get("uniqueItems") or item not in values:
            values.append(item)
    return values if len(values) >= schema.get("minItems", 0) else _refuse(schema)


def _count(schema: Mapping[str, Any], what: str, drawn: int, draw: random.Random) -> int:
    """A number of items or properties, of which some are drawn: at most two above the least."""
    least = max(drawn, schema.get(f"min{what}", 0))
    most = max(drawn, min(least + 2, schema.get(f"max{what}", inf)))
    return draw.randint(least, most) if least <= most else _refuse(schema)


def _text(schema: Mapping[str, Any], draw: random.Random, words: Sequence[str]) -> str:
    if schema.get("format") in FORMATS:
        return FORMATS[schema["format"]]
    least, most = schema.get("minLength", 0), schema.get("maxLength", inf)
    examples = [text for text in schema.get("examples", ()) if isinstance(text, str)]
    texts = [*words, " ".join(draw.choices(words, k=2)), *LITERALS, *examples]
    texts = [text.ljust(least, "a") for text in texts]
    pattern = schema.get("pattern", "")
    fitting = [text for text in texts if len(text) <= most and re.search(pattern, text)]
    return draw.choice(fitting) if fitting else _refuse(schema)


def _number(schema: Mapping[str, Any], draw: random.Random) -> JSON:
    above, below = schema.get("exclusiveMinimum", -inf), schema.get("exclusiveMaximum", inf)
    low, high = max(schema.get("minimum", -inf), above), min(schema.get("maximum", inf), below)
    low = min(0, high - 100) if low == -inf else low
    high = low + 100 if high == inf else high
    if step := schema.get("multipleOf", 1 if schema["type"] == "integer" else 0):
        least, most = ceil(round(low / step, 9)), floor(round(high / step, 9))
        least, most = least + (least * step <= above), most - (most * step >= below)
        if least > most:
            _refuse(schema)
        return round(draw.randint(least, most) * step, 9)  # type: ignore[no-any-return]
    number = low + (high - low) * draw.uniform(0.01, 0.99)
    if low > high:
        _refuse(schema)
    return round(number, 2) if high - low > 1 else number  # type: ignore[no-any-return]


def _refuse(schema: Mapping[str, Any]) -> Never:
    limits = {k: v for k, v in schema.items() if isinstance(v, int | float) or k == "pattern"}
    raise ValueError(f"nothing was found that fits {limits}.")
