"""A shop of a thousand products and more, which is read as text, page by page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import ToolError
from agentfly_core.environments.text_shop_catalogue import CatalogueProduct, catalogue
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats import hashing

NOTHING = "Nothing was found."


@dataclass(frozen=True, slots=True)
class Purchase:
    """A product and the chosen options: `Purchase(CatalogueProduct("4172", ...), ("red",))`."""

    product: CatalogueProduct
    options: tuple[str, ...]


class TextShop(Environment):
    """A shop with the catalogue that a problem's facts name:

        {"catalogue": {"seed": 7, "products": 1000}}

    It lists `results` products a page. `page` is the text that the shopper sees, `purchase` what
    was bought. Its verbs raise ToolError for a shopper's mistake.
    """

    def __init__(self, results: Annotated[int, Field(ge=1)] = 4) -> None:
        self.results = results

    async def reset(self, problem: Problem) -> None:
        """Open the shop; raises KeyError or TypeError for facts that are not as above."""
        drawn = problem.facts["catalogue"]
        self.catalogue = catalogue(drawn["seed"], drawn["products"])
        self.page = ""
        self.purchase: Purchase | None = None

    def browse(self, words: str, page: int) -> str:
        """A page of search results in lines such as `4172 plain slim cotton shirt $23`."""
        products = self.catalogue.search(words)
        pages = math.ceil(len(products) / self.results)
        if products and page > pages:
            raise ToolError(f"There is no page {page}, the last one is {pages}.")
        shown = products[(page - 1) * self.results : page * self.results]
        lines = [*map(_line, shown), f"page {page} of {pages}"]
        self.page = "\n".join(lines) if products else NOTHING
        return self.page

    def view(self, product: str) -> str:
        """The page of a product: its line, and one a kind of options, `colour: red, grey`."""
        seen = self._product(product)
        offered = [f"{kind}: {', '.join(values)}" for kind, values in seen.options.items()]
        self.page = "\n".join([_line(seen), *offered])
        return self.page

    def buy(self, product: str, options: Sequence[str]) -> Purchase:
        """Buy a product, with one option of a kind at most."""
        chosen = self._product(product)
        kinds = {value: kind for kind, values in chosen.options.items() for value in values}
        for option in options:
            if option not in kinds:
                raise ToolError(f"{product} has no {option!r}. It has: {', '.join(kinds)}.")
        for kind, count in Counter(kinds[option] for option in options).items():
            if count > 1:
                raise ToolError(f"Choose one {kind}, not {count}.")
        self.purchase = Purchase(chosen, tuple(options))
        return self.purchase

    def state_key(self) -> str:
        """What the shopper sees, and bought."""
        if self.purchase is None:
            return hashing.digest([self.page])
        bought = [self.purchase.product.id, *sorted(self.purchase.options)]
        return hashing.digest([self.page, bought])

    async def snapshot(self) -> bytes:
        """What the shopper sees, and bought."""
        bought = self.purchase and [self.purchase.product.id, self.purchase.options]
        return json.dumps([self.page, bought]).encode()

    async def restore(self, snapshot: bytes) -> None:
        """Go back to them."""
        self.page, bought = json.loads(snapshot)
        self.purchase = bought and Purchase(self._product(bought[0]), tuple(bought[1]))

    def _product(self, product: str) -> CatalogueProduct:
        if product not in self.catalogue.products:
            raise ToolError(f"There is no product {product!r}.")
        return self.catalogue.products[product]


def _line(product: CatalogueProduct) -> str:
    return f"{product.id} {product.title} ${product.price}"
