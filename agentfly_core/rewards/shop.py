"""Was the right thing bought?"""

from __future__ import annotations

from agentfly_core.authoring.reward import reward
from agentfly_core.environments.shop import Shop
from agentfly_core.records.trajectory import Problem, Score


@reward
async def bought(shop: Shop, problem: Problem) -> Score:
    """1 when the shop's order is exactly `problem.facts["order"]`, else 0.

    Its part `lines` is the share of the wanted products that were ordered in the wanted number.
    """
    wanted: dict[str, int] = problem.facts["order"]
    order = shop.order or {}
    lines = sum(order.get(key) == count for key, count in wanted.items()) / len(wanted)
    return Score(float(order == wanted), parts={"lines": lines})
