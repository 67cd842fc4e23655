"""Questions whose answer is two pages away in a generated encyclopaedia."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from typing import Any

from agentfly_core.datasets.names import people
from agentfly_core.datasets.splitting import sample
from agentfly_core.records.trajectory import Problem
from agentfly_core.tools.search import Row, rows

COUNTRIES = (
    "Albania",
    "Bolivia",
    "Chile",
    "Denmark",
    "Egypt",
    "Finland",
    "Greece",
    "Hungary",
    "India",
    "Japan",
    "Kenya",
    "Latvia",
    "Mexico",
    "Norway",
    "Oman",
    "Peru",
)
PROFESSIONS = (
    "baker",
    "banker",
    "botanist",
    "carpenter",
    "chemist",
    "dancer",
    "doctor",
    "farmer",
    "gardener",
    "lawyer",
    "nurse",
    "painter",
    "pilot",
    "sailor",
    "singer",
    "teacher",
)
ROLES = ("founder", "author")
QUESTIONS: Mapping[str, str] = {
    "country": "In which country was the {role} of {title} born?",
    "year": "In which year was the {role} of {title} born?",
    "profession": "What is the profession of the {role} of {title}?",
}


def encyclopaedia(
    seed: int, train: int, validation: int, test: int, corpus: str
) -> dict[str, list[Problem]]:
    """Problems for each split on the pages of a corpus such as data/raw/encyclopaedia.jsonl:

        Problem("country-0417", "In which country was the founder of Amber Mills born?",
            {"answer": "Peru", "kind": "country", "pages": ["0417", "0082"]})

    `pages` are the two that have to be read. No split asks about a person, a company or a book of
    another's, under any seed. Raises ValueError for more problems than there are, and for a
    corpus that cannot be read.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    draw, by_split = random.Random(seed), people()
    pages = rows(corpus)
    persons = {page["title"]: page for page in pages if "country" in page}
    made: dict[str, list[Problem]] = {split: [] for split in sizes}
    for (split, names), page, role in product(by_split.items(), pages, ROLES):
        if page.get(role) in names:
            made[split] += [problem(kind, role, page, persons[page[role]]) for kind in QUESTIONS]
    return {split: sample(draw, made[split], sizes[split], split) for split in sizes}


def problem(kind: str, role: str, about: Row, person: Row) -> Problem:
    """A question on the person who has a role in what a page is about."""
    facts: dict[str, Any] = {
        "answer": person[kind],
        "kind": kind,
        "pages": [about["id"], person["id"]],
    }
    prompt = QUESTIONS[kind].format(role=role, title=about["title"])
    return Problem(f"{kind}-{about['id']}", prompt, facts)
