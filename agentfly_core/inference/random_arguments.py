"""Values drawn at random that fit a JSON schema, for calls of tools that mean nothing."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from agentfly_core.system.formats.json_value import JSON

Schema = Mapping[str, Any]
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
LENGTHS = ("minLength", "maxLength")
NUMBERS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
DEEPEST = 4
TRIES = 50


class Undrawable(ValueError):
    """No value of a schema was found:
    `Undrawable("'code': no text was found that fits {'pattern': '^[A-Z]{3}[0-9]{4}$'}")`.
    """


class Draw:
    """Draws values of schemas without references: `Draw(random.Random(0), ["41+58"])`.

    Texts are words, short literals and the schema's examples: none is made up for a pattern.
    """

    def __init__(self, draw: random.Random, words: Sequence[str]) -> None:
        self._draw, self._words = draw, words

    def value(self, schema: Schema, depth: int = 0) -> JSON:
        """A value of this schema; below DEEPEST the shortest that there is. Raises Undrawable where
        none is found.
        """
        if "const" in schema:
            return schema["const"]  # type: ignore[no-any-return]
        if "enum" in schema:
            return self._draw.choice(schema["enum"])  # type: ignore[no-any-return]
        for several in ("anyOf", "oneOf"):
            if several in schema:
                options: Sequence[Schema] = schema[several]
                if {"type": "number"} in options:  # a decimal's text has to be a number, too
                    options = [option for option in options if option != {"type": "string"}]
                simple = [one for one in options if one.get("type") not in ("object", "array")]
                chosen = self._draw.choice(simple if simple and depth >= DEEPEST else options)
                return self.value(chosen, depth)
        kind = schema.get("type", "string")
        if isinstance(kind, list):
            kind = self._draw.choice(kind)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            return self._text(schema)
        if kind == "boolean":
            return self._draw.random() < 0.5
        if kind in ("integer", "number"):
            return self._number(schema, whole=kind == "integer")
        return None

    def _object(self, schema: Schema, depth: int) -> JSON:
        required, built = schema.get("required", ()), dict[str, JSON]()
        for key, inner in schema.get("properties", {}).items():
            if key in required or (depth < DEEPEST and self._draw.random() < 0.5):
                try:
                    built[key] = self.value(inner, depth + 1)
                except Undrawable as fault:
                    raise Undrawable(f"{key!r}: {fault}") from None
        more = schema.get("additionalProperties", False)
        if isinstance(more, Mapping):
            for _ in range(self._count(schema, "Properties", depth)):
                key = str(self.value(schema.get("propertyNames", {}), depth + 1))
                built[key] = self.value(more, depth + 1)
        return built

    def _array(self, schema: Schema, depth: int) -> JSON:
        first = [self.value(inner, depth + 1) for inner in schema.get("prefixItems", ())]
        items = schema.get("items", {})
        if items is False or ("prefixItems" in schema and "items" not in schema):
            return first
        count = max(0, self._count(schema, "Items", depth) - len(first))
        built = first
        for _ in range(TRIES):
            if len(built) >= len(first) + count:
                break
            value = self.value(items, depth + 1)
            if not schema.get("uniqueItems") or value not in built:
                built = [*built, value]
        if len(built) < schema.get("minItems", 0):
            raise Undrawable(f"{schema['minItems']} different items were not found")
        return built

    def _count(self, schema: Schema, what: str, depth: int) -> int:
        least = schema.get(f"min{what}", 0)
        most = min(schema.get(f"max{what}", least + 2), least + 2)
        if most < least:
            raise Undrawable(f"min{what} is {least}, and max{what} {most}")
        return least if depth >= DEEPEST else self._draw.randint(least, most)

    def _text(self, schema: Schema) -> str:
        if schema.get("format") in FORMATS:
            return FORMATS[schema["format"]]
        least: int = schema.get("minLength", 0)
        most: float = schema.get("maxLength", inf)
        pattern = schema.get("pattern")
        tried = []
        for _ in range(TRIES):  # a few words of what was said, as many as give so many letters
            few = ""
            for _ in range(self._draw.randint(1, 3)):
                few = f"{few} {self._draw.choice(self._words)}".strip()
            chosen = self._draw.choice([few, self._draw.choice(LITERALS)])
            tried.append(chosen.ljust(least, "a"))
        shown: list[str] = [text for text in schema.get("examples", ()) if isinstance(text, str)]
        candidates = [*shown, *self._words, *LITERALS, "a" * least]
        for text in (*tried, *self._draw.sample(candidates, len(candidates))):
            if least <= len(text) <= most and (pattern is None or re.search(pattern, text)):
                return text
        limits = {key: schema[key] for key in ("pattern", *LENGTHS) if key in schema}
        raise Undrawable(f"no text was found that fits {limits}")

    def _number(self, schema: Schema, whole: bool) -> JSON:
        step: float = schema.get("multipleOf", 1 if whole else 0)
        more = step or 1e-9
        low = max(schema.get("minimum", -inf), schema.get("exclusiveMinimum", -inf) + more)
        high = min(schema.get("maximum", inf), schema.get("exclusiveMaximum", inf) - more)
        if low == -inf and high == inf:
            low, high = 0, 100
        low, high = (high - 100 if low == -inf else low), (low + 100 if high == inf else high)
        least, most = math.ceil(low / (step or 1)), math.floor(high / (step or 1))
        if low > high or (step and least > most):
            limits = {key: schema[key] for key in NUMBERS if key in schema}
            raise Undrawable(f"no number fits {limits}")
        if step:
            return self._draw.randint(least, most) * step
        return round(self._draw.uniform(low, high), 2) if high - low > 1 else (low + high) / 2
