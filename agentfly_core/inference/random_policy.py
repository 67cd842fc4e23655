"""The policy `random`: each turn a random call of a tool."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from math import ceil, floor, inf
from typing import Any

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Message, ToolCall
from agentfly_core.system.formats.json_value import JSON

LITERALS = ("", "a", "A", "0", "1", "42", "-1", "3.5", "yes", "hello", "a-b", "a_b", "ab1", "1 2 3")
FORMATS = {
    "date": "2026-11-20",
    "date-time": "2026-11-20T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1DT2H",
    "uuid": "7f2c01d4-e5a6-47c8-9f2c-01d4e5a6b7c8",
}


async def random_policy(conversation: Conversation) -> str | Message:
    """Call a random tool with random arguments of its schema; without tools return three words.

    Texts are words of the conversation, short literals and the schema's examples. The seed of the
    conversation determines the reply.
    """
    draw = random.Random(conversation.seed)
    words = [word for item in conversation.messages for word in item.content.split()] or ["a"]
    if not conversation.tools:
        return " ".join(draw.choices(words, k=3))
    tool = draw.choice(conversation.tools)
    arguments = _value(tool.parameters, draw, words)
    assert isinstance(arguments, dict)
    return Message("assistant", "", (ToolCall(tool.name, arguments),))


def _value(schema: Mapping[str, Any], draw: random.Random, words: Sequence[str]) -> JSON:
    """A value of a JSON schema without references."""
    if choices := [schema["const"]] if "const" in schema else schema.get("enum"):
        return draw.choice(choices)  # type: ignore[no-any-return]
    if options := schema.get("anyOf", schema.get("oneOf")):
        numbers = [option for option in options if option == {"type": "number"}]
        return _value(draw.choice(numbers or options), draw, words)  # text of a decimal is a number
    match schema.get("type", "string"):
        case "object":
            return _object(schema, draw, words)
        case "array":
            first = [_value(item, draw, words) for item in schema.get("prefixItems", ())]
            least, items = schema.get("minItems", 0), schema.get("items") or {}
            count = draw.randint(least, min(least + 2, schema.get("maxItems", inf))) if items else 0
            drawn = [_value(items, draw, words) for _ in range(50 if count else 0)]
            if schema.get("uniqueItems"):
                drawn = [item for place, item in enumerate(drawn) if item not in drawn[:place]]
            return first + drawn[: max(0, count - len(first))]
        case "string":
            return _text(schema, draw, words)
        case "integer" | "number":
            return _number(schema, draw)
        case kind:
            return draw.random() < 0.5 if kind == "boolean" else None


def _object(schema: Mapping[str, Any], draw: random.Random, words: Sequence[str]) -> JSON:
    required, properties = schema.get("required", ()), schema.get("properties", {})
    keys = [key for key in properties if key in required or draw.random() < 0.5]
    values = {key: _value(properties[key], draw, words) for key in keys}
    for _ in range(schema.get("minProperties", 0)):
        name = str(_value(schema.get("propertyNames", {}), draw, words))
        values[name] = _value(schema["additionalProperties"], draw, words)
    return values


def _text(schema: Mapping[str, Any], draw: random.Random, words: Sequence[str]) -> str:
    if schema.get("format") in FORMATS:
        return FORMATS[schema["format"]]
    least, most = schema.get("minLength", 0), schema.get("maxLength", inf)
    examples = [text for text in schema.get("examples", ()) if isinstance(text, str)]
    texts = [*words, " ".join(draw.choices(words, k=2)), *LITERALS, *examples]
    texts = [text.ljust(least, "a") for text in texts]
    pattern = schema.get("pattern", "")
    return draw.choice([t for t in texts if len(t) <= most and re.search(pattern, t)] or texts)


def _number(schema: Mapping[str, Any], draw: random.Random) -> JSON:
    step = schema.get("multipleOf", 1 if schema["type"] == "integer" else 1e-4)
    low = schema.get("minimum", schema.get("exclusiveMinimum", -inf) + step)
    high = schema.get("maximum", schema.get("exclusiveMaximum", inf) - step)
    low = min(0, high - 100) if low == -inf else low
    high = low + 100 if high == inf else high
    return round(draw.randint(ceil(low / step), floor(high / step)) * step, 9)  # type: ignore[no-any-return]
