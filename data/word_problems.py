"""Writes data/raw/word-problems.jsonl: `python data/word_problems.py`, the same rows each time."""

from __future__ import annotations

import json
import random
from pathlib import Path

FILE = Path(__file__).parent / "raw" / "word-problems.jsonl"
ROWS = 1200
THINGS = ("pens", "nuts", "eggs", "cups", "keys", "hats", "pins", "figs")
STORIES = {
    "+": "{a} {things} and {b} more: how many?",
    "-": "{a} {things} less {b}: how many?",
    "*": "{a} bags of {b} {things}: how many?",
}


def rows() -> list[dict[str, str]]:
    """Problems of which no two work out the same expression, each with that and with its answer."""
    draw = random.Random(0)
    found: dict[str, dict[str, str]] = {}
    while len(found) < ROWS:
        a, b, sign = draw.randint(10, 99), draw.randint(10, 99), draw.choice("+-*")
        a, b = (max(a, b), min(a, b)) if sign == "-" else (a, b)
        answer = {"+": a + b, "-": a - b, "*": a * b}[sign]
        question, expression = (
            STORIES[sign].format(a=a, b=b, things=draw.choice(THINGS)),
            f"{a}{sign}{b}",
        )
        found[expression] = {"question": question, "expression": expression, "answer": str(answer)}
    return list(found.values())


def text() -> str:
    """The file, a row a line."""
    return "".join(f"{json.dumps(row)}\n" for row in rows())


if __name__ == "__main__":
    FILE.write_text(text())
