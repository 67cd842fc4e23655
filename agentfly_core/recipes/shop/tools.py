"""Tools of the shop."""

from agentfly_core import tool
from agentfly_core.recipes.shop.environment import Product, Shop


@tool
async def search(words: str, *, shop: Shop) -> dict[str, str]:
    """Find products by words of their names.

    Args:
        words: words that the name has, for example: red cup
    """
    return shop.search(words)


@tool
async def lookup(key: str, *, shop: Shop) -> Product:
    """See the name, the price and the stock of a product.

    Args:
        key: the product's key
    """
    return shop.lookup(key)


@tool
async def add_to_cart(key: str, count: int = 1, *, shop: Shop) -> dict[str, int]:
    """Put a product into the cart; returns what is in it.

    Args:
        key: the product's key
        count: how many
    """
    shop.add(key, count)
    return shop.cart


@tool(ends_episode=True)
async def checkout(*, shop: Shop) -> str:
    """Order what is in the cart; nothing can be done afterwards."""
    return f"Ordered for {shop.check_out()}."
