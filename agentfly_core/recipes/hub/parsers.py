"""Parsers of replies: JSON objects, and texts between delimiters.

A faulty reply is repaired only if the repair is unambiguous.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentfly_core.recipes.hub import faults

LONGEST, MOST_BRACES = 400, 8
"""The largest numbers of characters and of opening braces in a text that is repaired.

`_repairs` yields several repaired texts for each position of the text that is not within a word or
number. Each repaired text is parsed at most once from each opening brace. This would take too long
for longer texts.
"""
DECODER = json.JSONDecoder(strict=False)
COMMA = re.compile(r",(?=\s*\})")
INSIDE = re.compile(r"\w\w")
BLANK_LINE = re.compile(r"\n\s*\n")
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class JsonReply:
    """A parser for a JSON object with exactly these fields: `JsonReply({"say": str, "votes":
    int})`.

    Text around the object is ignored, and strings are stripped of outer whitespace. If one quote,
    comma, colon or brace is missing, or if there is one comma too many, the object is repaired. If
    there are several repairs with different results, AmbiguousReply is raised.
    """

    types: Mapping[str, type]

    def read(self, text: str) -> tuple[Fields, bool]:
        """Find the only object in a text that has the expected fields, and return its fields.

        The second value is True if the text had to be repaired, or has text around the object.
        Raises ReplyFault if no object or several different objects have the expected fields.
        """
        text = text.strip()
        first = _object_at(text, text.find("{"))
        fitting = self._fitting(_objects(text))
        if first and not fitting:
            # the object is valid JSON, so a repair could only drop a part of it
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
        """Return the objects that have the expected fields, without duplicates."""
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
    """A parser for texts between delimiters, such as `<thought>...</thought>`:

        MarkedReply({"thought": ("<thought>", "</thought>"), "say": ("<say>", "</say>")})
        MarkedReply({"code": ("```python", "```")})

    The texts are stripped of outer whitespace, and text outside of the delimiters is ignored.

    A reply may lack one delimiter. A text without its closing delimiter ends at the next delimiter
    or at the end of the reply. A text without its opening delimiter begins at the previous
    delimiter or at the beginning of the reply. MissingMark is raised if the text with a missing
    delimiter contains a blank line. MissingMark is also raised if several delimiters are missing,
    or if delimiters are repeated or not in the order of `marks`.
    """

    marks: Mapping[str, tuple[str, str]]

    def read(self, text: str) -> tuple[Fields, bool]:
        """Return a mapping from each name in `marks` to the text between its delimiters.

        The second value is True if a delimiter is missing, or if there is text outside of the
        delimiters.
        """
        expected = [mark for pair in self.marks.values() for mark in pair]
        longest_first = sorted({*expected}, key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
        # `texts` alternates between texts outside and inside of the marks
        texts, marks = pieces[::2], pieces[1::2]
        lacks = [n for n, _ in enumerate(expected) if marks == expected[:n] + expected[n + 1 :]]
        if marks != expected:
            if not lacks or BLANK_LINE.search(texts[lacks[0]].strip()):
                raise faults.MissingMark(f"expected {' '.join(expected)}")
            texts.insert(lacks[0] + lacks[0] % 2, "")
        fields = {name: one.strip() for name, one in zip(self.marks, texts[1::2], strict=True)}
        return fields, bool(lacks) or any(one.strip() for one in texts[::2])


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text."""
    end = 0
    while (at := text.find("{", end)) >= 0:
        value, end = _object_at(text, at) or ({}, at + 1)
        if value:
            yield value


def _object_at(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    """Return the JSON object that begins at the index `at`, and the index after it.

    Returns None if no object begins there.
    """
    try:
        value, end = DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


def _repairs(text: str) -> Iterator[str]:
    """Yield repaired texts. In each of them, one character is added or a comma is removed.

    Quotes, commas, colons and braces are added. A comma is removed before a brace.
    """
    if len(text) > LONGEST or text.count("{") > MOST_BRACES:
        return
    for comma in COMMA.finditer(text):
        yield text[: comma.start()] + text[comma.end() :]
    for at in range(len(text) + 1):
        before, after = text[:at], text[at:]
        # a brace within a line could drop fields, and a mark would split a word or number
        braces = "{" * (before[-1:] in ("", "\n")) + "}" * (after[:1] in ("", "\n"))
        marks = "" if INSIDE.match(before[-1:] + after[:1]) else '",:'
        yield from (f"{before}{mark}{after}" for mark in braces + marks)
