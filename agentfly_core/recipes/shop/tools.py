"""Tools that find products in the shop, put them into the cart and order them."""

from agentfly_core import ToolError, tool
from agentfly_core.recipes.shop.environment import Product, Shop


@tool
async def search(words: str, *, shop: Shop) -> dict[str, str]:
    """Find products by words of their names.

    Args:
        words: words that the name has, for example: red cup
    """
    wanted = set(words.lower().split())
    names = {key: product.name for key, product in shop.products.items()}
    matches = {key: name for key, name in names.items() if wanted <= {*name.lower().split()}}
    shop.page = sorted(matches)
    return matches


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
    product, there = shop.lookup(key), shop.cart.get(key, 0)
    if count < 1:
        raise ToolError(f"The count is {count}, expected 1 or more.")
    if there + count > product.stock:
        raise ToolError(f"Only {product.stock - there} of {key} are left.")
    shop.cart[key] = there + count
    return shop.cart


@tool(ends_episode=True)
async def checkout(*, shop: Shop) -> str:
    """Order what is in the cart; nothing can be done afterwards."""
    if not shop.cart:
        raise ToolError("The cart is empty.")
    shop.order, shop.cart = shop.cart, {}
    price = sum(shop.products[key].price * count for key, count in shop.order.items())
    return f"Ordered for {price}."
