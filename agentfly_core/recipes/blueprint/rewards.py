"""The reward for a building: the blocks of the world, compared with the order."""

from agentfly_core import Score, reward
from agentfly_core.recipes.blueprint.environment import Plot


@reward
async def building(plot: Plot) -> Score:
    """How well the built world equals the order: 0.7 iou + 0.3 complete - 0.3 extra, at least 0.

    `iou` is the intersection over union of the blocks, `complete` the share of parts without wrong
    cells, and `extra` the share of blocks outside of the building (see scoring.Fit). The reward is
    1 only if the world equals the order. The building may be shifted by one cell in each direction.
    The three terms are logged as partial scores.
    """
    now = plot.fit
    parts = {"iou": now.iou, "complete": now.complete, "extra": now.extra}
    return Score(now.value, parts)
