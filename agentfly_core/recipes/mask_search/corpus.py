"""A fictional encyclopaedia drawn from a seed, and corpora of users."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentfly_core.tools.search import Row, rows

SIZES = {"train": 1200, "val": 80, "test": 80}
"""Persons of each split, each with a firm and a book."""
_NUMBERS = range(1000, 10000)
_VALUES = range(10, 100)
# facts are numbers of constant length: a nano model learns to copy ten digits, but not 200 words
_FIRM = "Founded by person {person}, aged {age}, house {house}, badge {badge}."
_PERSON = "Aged {age}, house {house}, badge {badge}."
_BOOK = "Tells how firm {firm} was founded by person {person}."
QUESTIONS = {
    "age": "Which age has the founder of firm {firm}?",
    "house": "Which house has the founder of firm {firm}?",
    "badge": "Which badge has the founder of firm {firm}?",
}


class Family(NamedTuple):
    """The encyclopaedia's facts about a person, each on two pages: `Family("train", 4821, 3072,
    1177, age=57, house=38, badge=64)`. The number of the book is a title only.
    """

    split: str
    person: int
    firm: int
    book: int
    age: int
    house: int
    badge: int

    def pages(self) -> Iterator[Row]:
        """The pages of the firm, the person and the book, without ids.

        The book's page leads from the firm to the person. Only the firm's own page has both the
        firm and the person's facts.
        """
        facts = self._asdict()
        for kind, text in (("firm", _FIRM), ("person", _PERSON), ("book", _BOOK)):
            title = f"{kind} {facts[kind]}"
            yield {"title": title, "text": text.format(**facts), "split": self.split}

    def questions(self) -> Iterator[tuple[str, str, str]]:
        """Kind, text and answer of the questions on the founder of the firm."""
        facts = self._asdict()
        for kind, question in QUESTIONS.items():
            yield kind, question.format(**facts), str(facts[kind])


def families(seed: int) -> list[Family]:
    """The facts of a seed. Splits share no person, firm or book, under any seed."""
    draw, drawn = random.Random(seed), list[Family]()
    # not the seed of the encyclopaedia: a test name of one seed must not be trained with another
    numbers = iter(random.Random(0).sample(_NUMBERS, 3 * sum(SIZES.values())))
    for split, size in SIZES.items():
        kinds = [[next(numbers) for _ in range(size)] for _ in range(3)]
        for names in zip(*(draw.sample(kind, size) for kind in kinds), strict=True):
            drawn.append(Family(split, *names, *draw.sample(_VALUES, 3)))
    return drawn


def encyclopaedia(seed: int) -> list[Row]:
    """The pages of a seed: `{"id": "0017", "title": "firm 3072", "text": "Founded by person 4821,
    aged 57, house 38, badge 64.", "split": "train"}`, in random order.
    """
    pages = [page for family in families(seed) for page in family.pages()]
    random.Random(seed).shuffle(pages)
    return [{"id": f"{number:04}", **page} for number, page in enumerate(pages)]


def read(corpus: str) -> list[Row]:
    """The pages of a JSON-lines file, or of a folder whose text files have a title as first line.

    Raises ValueError for an unreadable file, or a folder without pages.
    """
    folder = Path(corpus)
    if not folder.is_dir():
        return rows(corpus)
    pages = list[Row]()
    for path in sorted([*folder.rglob("*.txt"), *folder.rglob("*.md")]):
        title, _, text = path.read_text().strip().partition("\n")
        name = path.relative_to(folder).with_suffix("").as_posix()
        pages.append({"id": name, "title": title.lstrip("# "), "text": " ".join(text.split())})
    if not pages:
        raise ValueError(f"The folder {corpus} has no .txt or .md files, expected a page in each.")
    return pages
