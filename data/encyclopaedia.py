"""Writes data/raw/encyclopaedia.jsonl: `python data/encyclopaedia.py`, the same pages each time."""

from __future__ import annotations

import json
import random
from pathlib import Path

from agentfly_core.datasets.names import books, companies, people
from agentfly_core.recipes.search.dataset import COUNTRIES, PROFESSIONS

FILE = Path(__file__).parent / "raw" / "encyclopaedia.jsonl"
YEARS = range(1900, 2000)


def rows() -> list[dict[str, str]]:
    """Each person's page, and those of the company and the book that are theirs, in any order."""
    draw = random.Random(0)
    firms, titles = companies(), books()
    found = []
    for split, names in people().items():
        for name, firm, title in zip(names, firms[split], titles[split], strict=True):
            found += [person(draw, name), company(name, firm), book(name, title)]
    draw.shuffle(found)
    return [{"id": f"{number:04}", **row} for number, row in enumerate(found)]


def person(draw: random.Random, name: str) -> dict[str, str]:
    """The page of a person."""
    told = {
        "profession": draw.choice(PROFESSIONS),
        "country": draw.choice(COUNTRIES),
        "year": str(draw.choice(YEARS)),
    }
    text = "A {profession}, born in {country} in {year}.".format(**told)
    return {"title": name, "text": text, **told}


def company(founder: str, name: str) -> dict[str, str]:
    """The page of a company."""
    return {"title": name, "text": f"A company, founded by {founder}.", "founder": founder}


def book(author: str, title: str) -> dict[str, str]:
    """The page of a book."""
    return {"title": title, "text": f"A book, written by {author}.", "author": author}


def text() -> str:
    """The file, a page a line."""
    return "".join(f"{json.dumps(row)}\n" for row in rows())


if __name__ == "__main__":
    FILE.write_text(text())
