"""Tools of the text shop."""

from typing import Annotated

from pydantic import Field

from agentfly_core import tool
from agentfly_core.recipes.text_shop.environment import TextShop


@tool
async def browse(words: str, page: Annotated[int, Field(ge=1)] = 1, *, shop: TextShop) -> str:
    """Search the shop; each product is listed as number, title and price.

    Args:
        words: words of the title, for example: slim cotton shirt
        page: 2 for the products that follow the first ones, and so on
    """
    return shop.browse(words, page)


@tool
async def view(product: str, *, shop: TextShop) -> str:
    """See a product with the options that there are.

    Args:
        product: its number
    """
    return shop.view(product)


@tool(ends_episode=True)
async def buy(product: str, options: tuple[str, ...] = (), *, shop: TextShop) -> str:
    """Buy a product; nothing can be done afterwards.

    Args:
        product: its number
        options: what is chosen of its options, one of a kind, for example: red, small
    """
    bought = shop.buy(product, options)
    return ", ".join((f"Bought {bought.product.title}", *bought.options))
