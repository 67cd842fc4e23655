"""What the text shop sells: a catalogue drawn from a seed, and a search in it."""

from __future__ import annotations

import functools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter


@dataclass(frozen=True, slots=True)
class Department:
    """Categories that are siblings, and the kinds of attributes that all of them have:
    `Department(("shirt", "coat"), (("cotton", "wool"), ("slim", "loose")))`.
    """

    categories: Sequence[str]
    attributes: Sequence[Sequence[str]]


DEPARTMENTS: Mapping[str, Department] = {
    "clothing": Department(
        ("shirt", "jacket", "skirt", "coat", "dress"),
        (
            ("cotton", "linen", "wool", "silk"),
            ("slim", "loose", "short", "long"),
            ("plain", "striped", "checked", "dotted"),
        ),
    ),
    "kitchen": Department(
        ("mug", "bowl", "plate", "jug", "dish"),
        (
            ("glass", "steel", "clay", "tin"),
            ("round", "square", "oval", "deep"),
            ("matt", "glossy", "ribbed", "painted"),
        ),
    ),
    "furniture": Department(
        ("chair", "table", "desk", "bench", "stool"),
        (
            ("oak", "pine", "ash", "bamboo"),
            ("modern", "rustic", "classic", "folding"),
            ("low", "high", "narrow", "wide"),
        ),
    ),
    "luggage": Department(
        ("backpack", "suitcase", "wallet", "purse", "satchel"),
        (
            ("leather", "canvas", "nylon", "suede"),
            ("soft", "rigid", "padded", "waterproof"),
            ("zipped", "buckled", "strapped", "quilted"),
        ),
    ),
    "garden": Department(
        ("spade", "rake", "hoe", "trowel", "sickle"),
        (
            ("iron", "copper", "bronze", "titanium"),
            ("light", "heavy", "sturdy", "handy"),
            ("curved", "straight", "pointed", "notched"),
        ),
    ),
}
CATEGORIES: Mapping[str, str] = {
    category: name for name, department in DEPARTMENTS.items() for category in department.categories
}
"""The department of each category."""
OPTIONS: Mapping[str, Sequence[str]] = {
    "colour": ("red", "blue", "green", "black", "white", "grey"),
    "size": ("tiny", "small", "medium", "large"),
}
IDS, PRICES = range(1000, 10000), range(10, 70)


@dataclass(frozen=True, slots=True)
class CatalogueProduct:
    """`CatalogueProduct("4172", "shirt", ("cotton", "slim", "plain"), 23, {"colour": ["red",
    "grey"], "size": ["small", "large"]})`: one attribute of each kind, and the buyer's options.
    """

    id: str
    category: str
    attributes: tuple[str, ...]
    price: int
    options: Mapping[str, Sequence[str]]

    @property
    def title(self) -> str:
        """`"plain slim cotton shirt"`."""
        return " ".join((*reversed(self.attributes), self.category))


class Catalogue:
    """Products by id, in the order of the ids, and a search in their titles."""

    def __init__(self, products: Sequence[CatalogueProduct]) -> None:
        self.products = {one.id: one for one in sorted(products, key=attrgetter("id"))}
        self._with_word = defaultdict[str, list[CatalogueProduct]](list)
        for product in self.products.values():
            for word in product.title.split():
                self._with_word[word].append(product)

    def search(self, words: str) -> list[CatalogueProduct]:
        """Products by the number of words in their title, then by id."""
        scores = Counter[str]()
        for word in set(re.findall(r"\w+", words.casefold())):
            scores.update(product.id for product in self._with_word.get(word, ()))
        best = sorted(scores, key=lambda product: (-scores[product], product))
        return [self.products[product] for product in best]


@functools.cache
def catalogue(seed: int, products: int, /) -> Catalogue:
    """Products drawn from a seed, cached; raises ValueError for more than there are IDS."""
    draw, made = random.Random(seed), []
    for number in draw.sample(IDS, products):
        category = draw.choice(list(CATEGORIES))
        kinds = DEPARTMENTS[CATEGORIES[category]].attributes
        offered = {
            kind: sorted(draw.sample(values, draw.randint(2, len(values) - 2)), key=values.index)
            for kind, values in OPTIONS.items()
        }
        attributes = tuple(draw.choice(kind) for kind in kinds)
        made.append(
            CatalogueProduct(str(number), category, attributes, draw.choice(PRICES), offered)
        )
    return Catalogue(made)
