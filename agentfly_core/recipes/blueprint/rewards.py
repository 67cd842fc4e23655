"""The reward for a building: the blocks of the world, compared with the ordered building."""

from agentfly_core import Score, reward
from agentfly_core.recipes.blueprint.environment import Plot


@reward
async def building(plot: Plot) -> Score:
    """The similarity of the world to the ordered building.

    The reward is 0.7 iou + 0.3 complete - 0.3 extra, but at least 0. `iou` is the intersection over
    union of the blocks. `complete` is the share of the building's parts (such as walls) that have
    no wrong cell.
    `extra` is the number of blocks outside of the building, divided by the number of the building's
    blocks. The three values are logged as partial scores. Values of `extra` above 1 count as 1.
    Before the comparison, the world is shifted by at most one cell along each axis to maximise
    `iou`. The reward is 1 only if the shifted world equals the ordered building.
    """
    now = plot.fit
    parts = {"iou": now.iou, "complete": now.complete, "extra": now.extra}
    return Score(now.value, parts)
