"""Tools of the text shop."""

import math
from collections import Counter
from typing import Annotated

from pydantic import Field

from agentfly_core import ToolError, tool
from agentfly_core.recipes.text_shop.environment import CatalogueProduct, Purchase, TextShop

NOTHING = "Nothing was found."


@tool
async def browse(words: str, page: Annotated[int, Field(ge=1)] = 1, *, shop: TextShop) -> str:
    """Search the shop; each product is listed as number, title and price.

    Args:
        words: words of the title, for example: slim cotton shirt
        page: 2 for the products that follow the first ones, and so on
    """
    products = shop.catalogue.search(words)
    pages = math.ceil(len(products) / shop.results)
    if products and page > pages:
        raise ToolError(f"There is no page {page}, the last one is {pages}.")
    shown = products[(page - 1) * shop.results : page * shop.results]
    lines = [*map(_line, shown), f"page {page} of {pages}"]
    shop.page = "\n".join(lines) if products else NOTHING
    return shop.page


@tool
async def view(product: str, *, shop: TextShop) -> str:
    """See a product with the options that there are.

    Args:
        product: its number
    """
    seen = shop.product(product)
    offered = [f"{kind}: {', '.join(values)}" for kind, values in seen.options.items()]
    shop.page = "\n".join([_line(seen), *offered])
    return shop.page


@tool(ends_episode=True)
async def buy(product: str, options: tuple[str, ...] = (), *, shop: TextShop) -> str:
    """Buy a product; nothing can be done afterwards.

    Args:
        product: its number
        options: what is chosen of its options, one of a kind, for example: red, small
    """
    chosen = shop.product(product)
    kinds = {value: kind for kind, values in chosen.options.items() for value in values}
    for option in options:
        if option not in kinds:
            raise ToolError(f"{product} has no {option!r}. It has: {', '.join(kinds)}.")
    for kind, count in Counter(kinds[option] for option in options).items():
        if count > 1:
            raise ToolError(f"Choose one {kind}, not {count}.")
    shop.purchase = Purchase(chosen, options)
    return ", ".join((f"Bought {chosen.title}", *options))


def _line(product: CatalogueProduct) -> str:
    """Describe a product in a line, such as `4172 plain slim cotton shirt $23`."""
    return f"{product.id} {product.title} ${product.price}"
