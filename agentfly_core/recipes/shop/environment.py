"""The environment of a small shop with products, a cart and a checkout."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core import Environment, Problem, ToolError, digest


@dataclass(frozen=True, slots=True)
class Product:
    """A product of the shop: `Product("red cup", price=3, stock=5)`."""

    name: str
    price: int
    stock: int


class Shop(Environment):
    """A shop with the products of a problem's facts:

        {"products": {"a7": {"name": "red cup", "price": 3, "stock": 5}}, "order": {"a7": 2}}

    The entry `order` is the right order, which the reward reads. The environment has these fields:

    - `products`: a `Product` for each key, such as "a7"
    - `page`: the keys of the products that the model saw last
    - `cart`: the number of pieces in the cart for each key, such as `{"a7": 2}`
    - `order`: the content of the cart at the checkout, or None before the checkout
    """

    async def reset(self, problem: Problem) -> None:
        """Fill the shelves and empty the cart.

        Raises KeyError if the problem's facts lack `products`. Raises TypeError for a product with
        wrong fields.
        """
        products = problem.facts["products"]
        self.products = {key: Product(**fields) for key, fields in products.items()}
        self.page: Sequence[str] = ()
        self.cart: dict[str, int] = {}
        self.order: dict[str, int] | None = None

    def lookup(self, key: str) -> Product:
        """Return the product with this key. Raises ToolError for an unknown key."""
        if key not in self.products:
            raise ToolError(f"No product has the key {key!r}.")
        self.page = (key,)
        return self.products[key]

    def state_key(self) -> str:
        return digest([list(self.page), self.cart, self.order])

    async def snapshot(self) -> bytes:
        return json.dumps([list(self.page), self.cart, self.order]).encode()

    async def restore(self, snapshot: bytes) -> None:
        self.page, self.cart, self.order = json.loads(snapshot)
