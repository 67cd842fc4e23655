"""Parsers of replies: JSON objects and marked texts, with repairs that have one meaning only."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentfly_core.recipes.hub import faults

LONGEST, MOST_BRACES = 400, 8
"""Longer texts and those with more opening braces are not repaired, because each place of a mark is
tried, and in each such text an object at each brace.
"""
DECODER = json.JSONDecoder(strict=False)
COMMA = re.compile(r",(?=\s*\})")
INSIDE = re.compile(r"\w\w")
BLANK_LINE = re.compile(r"\n\s*\n")
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class JsonReply:
    """A JSON object with these fields alone: `JsonReply({"say": str, "votes": int})`.

    Texts lose outer whitespace. A reply may have text around the object. It is repaired if one mark
    (a quote, comma, colon or brace) is missing or one comma is too many, and if all such repairs
    give the same fields.
    """

    types: Mapping[str, type]

    def read(self, text: str) -> tuple[Fields, bool]:
        """The fields of the one object in a text, and whether a rule was needed."""
        text = text.strip()
        first = _object_at(text, text.find("{"))
        fitting = self._fitting(_objects(text))
        if first and not fitting:
            # it is valid, so a repair could only drop a part of it
            self._checked(first[0])
        if not {'"', "{", "}"} & {*text}:
            raise faults.NoJson("expected a JSON object")
        fitting = fitting or self._fitting(v for one in _repairs(text) for v in _objects(one))
        if not fitting:
            raise faults.BrokenJson("invalid JSON")
        if len(fitting) > 1:
            raise faults.AmbiguousReply("expected one object")
        return fitting[0], not (text[0] == "{" and first and first[1] == len(text))

    def _fitting(self, objects: Iterator[dict[str, Any]]) -> list[Fields]:
        """The different objects that have the fields."""
        fitting = list[Fields]()
        for value in objects:
            with suppress(faults.WrongFields, faults.WrongType):
                if (fields := self._checked(value)) not in fitting:
                    fitting.append(fields)
        return fitting

    def _checked(self, value: dict[str, Any]) -> Fields:
        if value.keys() != self.types.keys():
            raise faults.WrongFields(f"expected the fields {', '.join(self.types)}")
        for name, kind in self.types.items():
            # isinstance accepts True as a number
            if type(value[name]) is not kind:
                raise faults.WrongType(f"expected {name} of the type {kind.__name__}")
        return {name: one.strip() if isinstance(one, str) else one for name, one in value.items()}


@dataclass(frozen=True)
class MarkedReply:
    """Texts between marks: `MarkedReply({"thought": ("<thought>", "</thought>"), "say": ...})`,
    `MarkedReply({"code": ("```python", "```")})`.

    They lose outer whitespace. A reply may have text around them. One missing mark is added at the
    next mark or the end of the text, unless there is a blank line between them.
    """

    marks: Mapping[str, tuple[str, str]]

    def read(self, text: str) -> tuple[Fields, bool]:
        """The texts, and whether a rule was needed."""
        expected = [mark for pair in self.marks.values() for mark in pair]
        longest_first = sorted({*expected}, key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
        # texts outside and inside of the marks in turn
        texts, marks = pieces[::2], pieces[1::2]
        lacks = [n for n, _ in enumerate(expected) if marks == expected[:n] + expected[n + 1 :]]
        if marks != expected:
            if not lacks or BLANK_LINE.search(texts[lacks[0]].strip()):
                raise faults.MissingMark(f"expected {' '.join(expected)}")
            texts.insert(lacks[0] + lacks[0] % 2, "")
        fields = {name: one.strip() for name, one in zip(self.marks, texts[1::2], strict=True)}
        return fields, bool(lacks) or any(one.strip() for one in texts[::2])


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text."""
    end = 0
    while (at := text.find("{", end)) >= 0:
        value, end = _object_at(text, at) or ({}, at + 1)
        if value:
            yield value


def _object_at(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    """The object that begins at a place, with its end."""
    try:
        value, end = DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


def _repairs(text: str) -> Iterator[str]:
    """The text with one mark more, or without a comma before a brace."""
    if len(text) > LONGEST or text.count("{") > MOST_BRACES:
        return
    for comma in COMMA.finditer(text):
        yield text[: comma.start()] + text[comma.end() :]
    for at in range(len(text) + 1):
        before, after = text[:at], text[at:]
        # a brace amid a line could drop fields, and a mark amid a word or number would divide it
        braces = "{" * (before[-1:] in ("", "\n")) + "}" * (after[:1] in ("", "\n"))
        marks = "" if INSIDE.match(before[-1:] + after[:1]) else '",:'
        yield from (f"{before}{mark}{after}" for mark in braces + marks)
