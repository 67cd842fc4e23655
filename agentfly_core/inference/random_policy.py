"""The policy `random`. It calls a random tool in each turn."""

import random
from collections.abc import Mapping, Sequence
from math import ceil, floor, inf
from typing import Any

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Message, ToolCall
from agentfly_core.system.formats.json_value import JSON


async def random_policy(conversation: Conversation) -> str | Message:
    """Call a random tool with random arguments. Without tools, reply with three words.

    Arguments respect the types, choices and bounds in the tool's schema. Texts are examples from
    the schema, words of the conversation or digits. The seed of the conversation determines the
    reply.
    """
    draw = random.Random(conversation.seed)
    words = [word for item in conversation.messages for word in item.content.split()] or ["a"]
    if not conversation.tools:
        return " ".join(draw.choices(words, k=3))
    tool = draw.choice(conversation.tools)
    arguments = _object(tool.parameters, draw, words)
    return Message("assistant", "", (ToolCall(tool.name, arguments),))


def _object(
    schema: Mapping[str, Any], draw: random.Random, words: Sequence[str]
) -> dict[str, JSON]:
    required = schema.get("required", ())
    return {
        key: _value(inner, draw, words)
        for key, inner in schema.get("properties", {}).items()
        if key in required or draw.random() < 0.5
    }


def _value(schema: Mapping[str, Any], draw: random.Random, words: Sequence[str]) -> JSON:
    choices: Sequence[JSON] = schema.get("enum") or schema.get("examples") or ()
    if options := schema.get("anyOf", schema.get("oneOf")):
        return _value(draw.choice(options), draw, words)
    match schema.get("type", "string"):
        case _ if "const" in schema or choices:
            chosen: JSON = draw.choice(choices or [schema["const"]])
            return chosen
        case "object":
            return _object(schema, draw, words)
        case "array":
            least = schema.get("minItems", 0)
            count = draw.randint(least, min(least + 2, schema.get("maxItems", inf)))
            items = schema.get("prefixItems") or [schema.get("items", {})] * count
            return [_value(item, draw, words) for item in items]
        case "integer" | "number" as kind:
            return _number(schema, draw, kind)
        case "boolean":
            return draw.random() < 0.5
        case "null":
            return None
    return draw.choice([*words, str(draw.randrange(10))])[: schema.get("maxLength")]


def _number(schema: Mapping[str, Any], draw: random.Random, kind: str) -> JSON:
    """Draw a number that respects the bounds in the schema.

    Without a minimum, the smallest number is min(0, maximum - 100). Without a maximum, the largest
    number is the smallest number + 100.
    """
    low = schema.get("minimum", schema.get("exclusiveMinimum", -inf))
    high = schema.get("maximum", schema.get("exclusiveMaximum", inf))
    low = min(0, high - 100) if low == -inf else low
    high = low + 100 if high == inf else high
    if kind == "number":
        return draw.uniform(low, high)
    least = ceil(low) + ("exclusiveMinimum" in schema)
    return draw.randint(least, floor(high) - ("exclusiveMaximum" in schema))
