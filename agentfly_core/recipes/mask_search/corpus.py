"""A fictional encyclopaedia that is generated from a seed, and a function that reads a corpus."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentfly_core.tools.search import Row, rows

SIZES = {"train": 1200, "val": 240, "test": 240}
"""The number of persons in each split. Each person has a firm and a book."""
_NUMBERS = range(1000, 10000)
# A nano model learns to copy digits over a constant distance, but it cannot learn 200 words. So all
# names and facts are numbers of constant length, and the number to search for next ends a page.
_FIRM = "Its founder has badge {badge} and is person {person}."
_PERSON = "Has badge {badge}."
_BOOK = "Tells how firm {firm} was founded by person {person}."
_QUESTION = "Which badge has the founder of firm {firm}?"


class Family(NamedTuple):
    """A person with a firm, a book and a badge. Each of the four is named by a four-digit number.

    Each person, firm and book has a page in the encyclopaedia. An example is
    `Family("train", person=4821, firm=3072, book=1177, badge=5738)`.
    """

    split: str
    person: int
    firm: int
    book: int
    badge: int

    def pages(self) -> Iterator[Row]:
        """Yield the pages of the firm, the person and the book, without ids.

        The page of the book names the firm and its founder (the person).
        """
        facts = self._asdict()
        for kind, text in (("firm", _FIRM), ("person", _PERSON), ("book", _BOOK)):
            title = f"{kind} {facts[kind]}"
            yield {"title": title, "text": text.format(**facts), "split": self.split}

    def question(self) -> str:
        """Return the family's question: "Which badge has the founder of firm 3072?"."""
        return _QUESTION.format(firm=self.firm)


def families(seed: int) -> list[Family]:
    """Draw the families. Each has one person, firm, book and badge.

    Persons, firms, books and badges are named by four-digit numbers. These numbers and their splits
    do not depend on the seed. The seed decides which person, firm, book and badge form a family.
    """
    draw, drawn = random.Random(seed), list[Family]()
    # a constant seed, because a test name must not be a training name under another seed
    numbers = iter(random.Random(0).sample(_NUMBERS, 4 * sum(SIZES.values())))
    for split, size in SIZES.items():
        kinds = [[next(numbers) for _ in range(size)] for _ in range(4)]
        drawn += [
            Family(split, *facts)
            for facts in zip(*(draw.sample(kind, size) for kind in kinds), strict=True)
        ]
    return drawn


def encyclopaedia(seed: int) -> list[Row]:
    """Generate the pages of the encyclopaedia from a seed, in random order.

    A page is, for example,

        {"id": "0017", "title": "firm 3072",
            "text": "Its founder has badge 5738 and is person 4821.", "split": "train"}
    """
    pages = [page for family in families(seed) for page in family.pages()]
    random.Random(seed).shuffle(pages)
    return [{"id": f"{number:04}", **page} for number, page in enumerate(pages)]


def read(corpus: str) -> list[Row]:
    """Read the pages of a JSON-lines file, or of a folder of text files.

    The files of a folder end with .txt or .md. The first line of a file is the title of a page.
    Raises ValueError if the JSON-lines file is unreadable or has wrong rows, and for a folder
    without pages.
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
        raise ValueError(f"The folder {corpus} has no .txt or .md files. Add a file per page.")
    return pages
