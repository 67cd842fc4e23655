"""The reward for a purchase in the text shop."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core import Problem, Score, reward
from agentfly_core.recipes.text_shop.environment import CATEGORIES, Purchase, TextShop


@dataclass(frozen=True, slots=True)
class Wish:
    """The category, attributes, options and highest price of the wanted product:
    `Wish("shirt", ("cotton", "slim"), ("red",), limit=40)`.
    """

    category: str
    attributes: Sequence[str]
    options: Sequence[str]
    limit: int


@reward
async def purchase(shop: TextShop, problem: Problem) -> Score:
    """How well the bought product fits the wish, from 0 to 1. Without a purchase, the reward is 0.

    The reward is type * (attributes + options + price) / (number of wanted attributes + number of
    wanted options + 1). `type` is 1 for the wanted category, 0.5 for a different category of the
    same department, and otherwise 0. `attributes` and `options` are the numbers of wanted
    attributes and options that the purchase has. `price` is 1 if the price is at most the limit,
    else 0. These four terms are the partial scores. `problem.facts["wish"]` has the fields of
    the `Wish`.
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
