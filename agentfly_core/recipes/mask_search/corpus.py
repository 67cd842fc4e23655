"""A fictional encyclopaedia drawn from a seed, and corpora of users."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentfly_core.datasets.names import books, companies, people
from agentfly_core.tools.search import Row, rows

COUNTRIES = (
    *("Albania", "Bolivia", "Chile", "Denmark", "Egypt", "Finland", "Greece", "Hungary"),
    *("India", "Japan", "Kenya", "Latvia", "Mexico", "Norway", "Oman", "Peru"),
    *("Qatar", "Romania", "Spain", "Tunisia", "Uganda", "Vietnam", "Yemen", "Zambia"),
)
TOWNS = (
    *("Avila", "Bergen", "Cork", "Delft", "Espoo", "Faro", "Ghent", "Haifa"),
    *("Izmir", "Jena", "Kassel", "Lyon", "Malaga", "Nantes", "Oulu", "Porto"),
    *("Quito", "Riga", "Siena", "Turin", "Ulm", "Varna", "Worms", "York"),
)
SIZES = {"train": 320, "val": 40, "test": 40}
"""Persons of each split, each with a company and a book."""
_PERSON = "Born in {country}, living in {town}, founder of {company}, author of {book}."
_COMPANY = "Founded by {person}, born in {country}, living in {town}."
_BOOK = "Written by {person}, born in {country}, living in {town}."
_NOUNS = {"founder": "company", "author": "book"}
_ASKED = {
    "country": "In which country was the {role} of {title} born?",
    "town": "In which town is the {role} of {title} living?",
    "book": "Of which book is the {role} of {title} the author?",
    "company": "Of which company is the {role} of {title} the founder?",
}


class Family(NamedTuple):
    """The encyclopaedia's facts about a person; each fact is on two or three pages."""

    split: str
    person: str
    company: str
    book: str
    country: str
    town: str

    def pages(self) -> Iterator[Row]:
        """The pages of the person, the company and the book, without ids."""
        facts = self._asdict()
        texts = {self.person: _PERSON, self.company: _COMPANY, self.book: _BOOK}
        for title, text in texts.items():
            yield {"title": title, "text": text.format(**facts), "split": self.split}

    def questions(self) -> Iterator[tuple[str, str]]:
        """Questions on two facts, with their answers: the town of the author of a book."""
        facts = self._asdict()
        for role, noun in _NOUNS.items():
            for kind, question in _ASKED.items():
                if kind != noun:
                    yield question.format(role=role, title=facts[noun]), facts[kind]


def families(seed: int) -> list[Family]:
    """The facts of a seed. Splits share no person, company or book, under any seed."""
    draw, drawn = random.Random(seed), list[Family]()
    for split, size in SIZES.items():
        name = "validation" if split == "val" else split
        names = [draw.sample(kind()[name], size) for kind in (people, companies, books)]
        for person, company, book in zip(*names, strict=True):
            places = draw.choice(COUNTRIES), draw.choice(TOWNS)
            drawn.append(Family(split, person, company, book, *places))
    return drawn


def encyclopaedia(seed: int) -> list[Row]:
    """The pages of a seed: `{"id": "0017", "title": "Amber Mills", "text": "Founded by Anna Berg,
    born in Peru, living in Cork.", "split": "train"}`, in random order.
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
