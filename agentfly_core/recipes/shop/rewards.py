"""The reward for an order in the shop."""

from agentfly_core import Problem, Score, reward
from agentfly_core.recipes.shop.environment import Shop


@reward
async def bought(shop: Shop, problem: Problem) -> Score:
    """1 if the bought products and their numbers are equal to `problem.facts["order"]`, else 0.

    The partial score `lines` is the share of products on the shopping list that were bought in the
    right number.
    """
    wanted: dict[str, int] = problem.facts["order"]
    order = shop.order or {}
    lines = sum(order.get(key) == count for key, count in wanted.items()) / len(wanted)
    return Score(float(order == wanted), parts={"lines": lines})
