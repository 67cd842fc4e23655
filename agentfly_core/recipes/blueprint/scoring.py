"""Compare the blocks in a world with the building that a problem's prompt describes."""

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agentfly_core.recipes.blueprint.drawing import drawn
from agentfly_core.recipes.blueprint.world import Grid

SHIFTS = tuple(product((0, -1, 1), repeat=3))
"""All shifts of the world, in cells, that `fit` tries. The first shift is (0, 0, 0)."""


class Assembly(NamedTuple):
    """The building that the prompt describes. `target` has the required block of each cell.

    `owners` has the index of the part to which each cell belongs, or -1 outside of all parts.
    """

    target: Grid
    owners: npt.NDArray[np.int16]


class Fit(NamedTuple):
    """A comparison of a world with the building that the prompt describes.

    Before the comparison, the world is shifted by at most one cell along each axis to maximise
    `iou`. `iou` is the number of cells with the right block, divided by the number of cells with a
    block in the world or in the building. `wrong` counts, for each part (such as the walls), the
    cells with a missing or different block. `extra` is the number of the world's blocks outside of
    the building, divided by the number of the building's blocks.
    """

    iou: float
    wrong: Mapping[str, int]
    extra: float

    @property
    def complete(self) -> float:
        """The share of the building's parts (such as the walls) without wrong cells."""
        return sum(not count for count in self.wrong.values()) / len(self.wrong)

    @property
    def value(self) -> float:
        """0.7 iou + 0.3 complete - 0.3 extra, at least 0.

        `complete` is the share of the building's parts without wrong cells. The value is 1 only if
        the world, shifted as explained in Fit, equals the building. An `extra` above 1 counts as 1.
        """
        return max(0.0, 0.7 * self.iou + 0.3 * self.complete - 0.3 * min(1.0, self.extra))


def assembled(parts: Mapping[str, str]) -> Assembly:
    """Assemble a building from the blueprints of its parts.

    Raises ToolError for a blueprint that cannot be read.
    """
    target = drawn("")
    owners = np.full(target.shape, -1, np.int16)
    for number, blueprint in enumerate(parts.values()):
        part = drawn(blueprint)
        target[part > 0], owners[part > 0] = part[part > 0], number
    return Assembly(target, owners)


def fit(grid: Grid, parts: Mapping[str, str]) -> Fit:
    """Compare the world `grid` with the building that `parts` describes. See Fit for the result.

    `parts` maps the name of each part of the building to its blueprint.
    """
    target, owners = assembled(parts)
    padded, size = np.pad(grid, 1), len(grid)
    best, shifted = -1.0, grid
    for east, north, up in SHIFTS:
        moved = padded[1 + east :, 1 + north :, 1 + up :][:size, :size, :size]
        equal = int(np.count_nonzero((moved == target) & (target > 0)))
        iou = equal / int(np.count_nonzero((moved > 0) | (target > 0)))
        if iou > best:
            best, shifted = iou, moved
    wrong = {
        name: int(np.count_nonzero(shifted[owners == number] != target[owners == number]))
        for number, name in enumerate(parts)
    }
    extra = np.count_nonzero((shifted > 0) & (target == 0)) / np.count_nonzero(target)
    return Fit(best, wrong, float(extra))
