"""The reward for a purchase in the text shop."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core import Problem, Score, reward
from agentfly_core.recipes.text_shop.environment import CATEGORIES, Purchase, TextShop


@dataclass(frozen=True, slots=True)
class Wish:
    """The wanted product: `Wish("shirt", ("cotton", "slim"), ("red",), limit=40)`."""

    category: str
    attributes: Sequence[str]
    options: Sequence[str]
    limit: int


@reward
async def purchase(shop: TextShop, problem: Problem) -> Score:
    """type x (attributes met + options met + [price <= limit]) / (attributes + options asked + 1).

    Without a purchase, the score is 0. `problem.facts["wish"]` has the fields of a Wish. `type` is
    1 for the wanted category, 0.5 for another category of the same department, else 0. The parts of
    the score are type, attributes, options and price.
    """
    if shop.purchase is None:
        return Score(0.0, {"type": 0.0, "attributes": 0.0, "options": 0.0, "price": 0.0})
    return fit(shop.purchase, Wish(**problem.facts["wish"]))


def fit(bought: Purchase, wish: Wish) -> Score:
    product = bought.product
    related = CATEGORIES[product.category] == CATEGORIES[wish.category]
    kind = 1.0 if product.category == wish.category else 0.5 if related else 0.0
    met = {
        "attributes": float(len(set(wish.attributes) & set(product.attributes))),
        "options": float(len(set(wish.options) & set(bought.options))),
        "price": float(product.price <= wish.limit),
    }
    wanted = len(wish.attributes) + len(wish.options) + 1
    return Score(kind * sum(met.values()) / wanted, {"type": kind, **met})
