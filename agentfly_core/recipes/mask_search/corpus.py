"""A fictional encyclopaedia drawn from a seed, and corpora of users."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentfly_core.tools.search import Row, rows

SIZES = {"train": 1200, "val": 240, "test": 240}
"""Persons of each split, each with a firm and a book."""
_NUMBERS = range(1000, 10000)
# A nano model learns to copy digits, but not 200 words, and copies them over a constant distance
# only: names and facts are numbers of constant length, and the next number is last on its page.
_FIRM = "Its founder has badge {badge} and is person {person}."
_PERSON = "Has badge {badge}."
_BOOK = "Tells how firm {firm} was founded by person {person}."
_QUESTION = "Which badge has the founder of firm {firm}?"


class Family(NamedTuple):
    """The encyclopaedia's facts about a person, each on two pages: `Family("train", person=4821,
    firm=3072, book=1177, badge=5738)`. The number of the book is a title only.
    """

    split: str
    person: int
    firm: int
    book: int
    badge: int

    def pages(self) -> Iterator[Row]:
        """The pages of the firm, the person and the book, without ids.

        The book's page leads from the firm to the person. Only the firm's own page has both the
        firm and the badge.
        """
        facts = self._asdict()
        for kind, text in (("firm", _FIRM), ("person", _PERSON), ("book", _BOOK)):
            title = f"{kind} {facts[kind]}"
            yield {"title": title, "text": text.format(**facts), "split": self.split}

    def question(self) -> str:
        """The question about the badge."""
        return _QUESTION.format(firm=self.firm)


def families(seed: int) -> list[Family]:
    """The facts of a seed. Splits share no number, under any seed."""
    draw, drawn = random.Random(seed), list[Family]()
    # not the seed of the encyclopaedia: a test name of one seed must not be trained with another
    numbers = iter(random.Random(0).sample(_NUMBERS, 4 * sum(SIZES.values())))
    for split, size in SIZES.items():
        kinds = [[next(numbers) for _ in range(size)] for _ in range(4)]
        drawn += [
            Family(split, *facts)
            for facts in zip(*(draw.sample(kind, size) for kind in kinds), strict=True)
        ]
    return drawn


def encyclopaedia(seed: int) -> list[Row]:
    """The pages of a seed: `{"id": "0017", "title": "firm 3072", "text": "Its founder has badge
    5738 and is person 4821.", "split": "train"}`, in random order.
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
