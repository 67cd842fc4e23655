"""The reward for a building: the blocks of the world, compared with the order."""

from agentfly_core import Score, reward
from agentfly_core.recipes.blueprint.environment import Plot


@reward
async def building(plot: Plot) -> Score:
    """0.7 iou + 0.3 complete - 0.3 extra (see scoring.Fit); 1 only if the world equals the order.

    The building may be shifted by one cell in each direction. The terms are logged as the partial
    scores `iou`, `complete` and `extra`.
    """
    now = plot.fit
    parts = {"iou": now.iou, "complete": now.complete, "extra": now.extra}
    return Score(now.value, parts)
