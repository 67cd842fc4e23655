"""A shop with a generated catalogue, which is read as text pages."""

import functools
import json
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from pydantic import Field

from agentfly_core import Environment, Problem, ToolError, digest

_FILE = Path(__file__).with_name("departments.toml")
DEPARTMENTS: Mapping[str, Sequence[Sequence[str]]] = {
    name: [words.split() for words in kinds]
    for name, kinds in tomllib.loads(_FILE.read_text()).items()
}
"""Maps each department to lists of words.

The first list has the categories of products. Each further list has the values of one kind of
attribute, such as materials.
"""
CATEGORIES: Mapping[str, str] = {
    category: name for name, (categories, *_) in DEPARTMENTS.items() for category in categories
}
"""The department of each category."""
OPTIONS: Mapping[str, Sequence[str]] = {
    "colour": ("red", "blue", "green", "black", "white", "grey"),
    "size": ("tiny", "small", "medium", "large"),
}
IDS, PRICES = range(1000, 10000), range(10, 70)


@dataclass(frozen=True, slots=True)
class CatalogueProduct:
    """A product of a catalogue:

        CatalogueProduct("4172", "shirt", ("cotton", "slim", "plain"), 23,
                         {"colour": ["red", "grey"], "size": ["tiny", "small"]})

    The fields are the id, the category, the attributes, the price, and the options. The category
    and the attributes come from the lists of words of one department in DEPARTMENTS: the category
    from the first list, and one attribute from each further list. A buyer can choose one value of
    each option, such as "red".
    """

    id: str
    category: str
    attributes: tuple[str, ...]
    price: int
    options: Mapping[str, Sequence[str]]

    @property
    def title(self) -> str:
        """The attributes in reverse order, and then the category: `"plain slim cotton shirt"`."""
        return " ".join((*reversed(self.attributes), self.category))


class Catalogue:
    """Products sorted by id, with a search in their titles."""

    def __init__(self, products: Sequence[CatalogueProduct]) -> None:
        self.products = {one.id: one for one in sorted(products, key=attrgetter("id"))}
        self._with_word = defaultdict[str, list[CatalogueProduct]](list)
        for product in self.products.values():
            for word in product.title.split():
                self._with_word[word].append(product)

    def search(self, words: str) -> list[CatalogueProduct]:
        """Return the products with at least one of the words in their title.

        Products with more matching words come first. Products with the same number of matching
        words are sorted by id.
        """
        scores = Counter[str]()
        for word in set(re.findall(r"\w+", words.casefold())):
            scores.update(product.id for product in self._with_word.get(word, ()))
        best = sorted(scores, key=lambda product: (-scores[product], product))
        return [self.products[product] for product in best]


@functools.cache
def catalogue(seed: int, products: int, /) -> Catalogue:
    """Draw a catalogue from a seed. Catalogues are cached.

    Raises ValueError for more than 9,000 products, because there are only 9,000 ids.
    """
    draw, made = random.Random(seed), []
    for number in draw.sample(IDS, products):
        category = draw.choice(list(CATEGORIES))
        kinds = DEPARTMENTS[CATEGORIES[category]][1:]
        # at least two values of each kind, because a wrong choice must be possible
        offered = {
            kind: sorted(draw.sample(values, draw.randint(2, len(values) - 2)), key=values.index)
            for kind, values in OPTIONS.items()
        }
        attributes = tuple(draw.choice(kind) for kind in kinds)
        made.append(
            CatalogueProduct(str(number), category, attributes, draw.choice(PRICES), offered)
        )
    return Catalogue(made)


@dataclass(frozen=True, slots=True)
class Purchase:
    """A product and the chosen options: `Purchase(CatalogueProduct("4172", ...), ("red",))`."""

    product: CatalogueProduct
    options: tuple[str, ...]


class TextShop(Environment):
    """A shop with a generated catalogue. The facts of a problem contain the seed of the catalogue:

        {"catalogue": {"seed": 7, "products": 1000}}

    Search results are shown in pages of `results` products. The field `page` is the text that the
    model read last. The field `purchase` is None until a product is bought.
    """

    def __init__(self, results: Annotated[int, Field(ge=1)] = 4) -> None:
        self.results = results

    async def reset(self, problem: Problem) -> None:
        """Open the shop of a problem.

        Raises KeyError if the fact `catalogue`, or its key `seed` or `products`, is missing. Raises
        TypeError for a value of a wrong type, and ValueError for more than 9,000 products.
        """
        drawn = problem.facts["catalogue"]
        self.catalogue = catalogue(drawn["seed"], drawn["products"])
        self.page = ""
        self.purchase: Purchase | None = None

    def product(self, number: str) -> CatalogueProduct:
        """Return the product with this number. Raises ToolError for an unknown number."""
        if number not in self.catalogue.products:
            raise ToolError(f"There is no product {number!r}.")
        return self.catalogue.products[number]

    def state_key(self) -> str:
        if self.purchase is None:
            return digest([self.page])
        # sorted, because the order of options does not matter
        bought = [self.purchase.product.id, *sorted(self.purchase.options)]
        return digest([self.page, bought])

    async def snapshot(self) -> bytes:
        bought = self.purchase and [self.purchase.product.id, self.purchase.options]
        return json.dumps([self.page, bought]).encode()

    async def restore(self, snapshot: bytes) -> None:
        self.page, bought = json.loads(snapshot)
        self.purchase = bought and Purchase(self.product(bought[0]), tuple(bought[1]))
