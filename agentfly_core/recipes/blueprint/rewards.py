"""The reward for a building, measured on the world."""

from agentfly_core import Score, reward
from agentfly_core.recipes.blueprint.environment import Plot


@reward
async def building(plot: Plot) -> Score:
    """0.7 iou + 0.3 complete - 0.3 extra; 1 only if the world equals the order (scoring.Fit).

    The world may be shifted by one cell in each direction. Parts: `iou`, `complete` and `extra`.
    """
    now = plot.fit
    parts = {"iou": now.iou, "complete": now.complete, "extra": now.extra}
    return Score(now.value, parts)
