"""Place the blocks of a target in an order that the rules allow, with temporary scaffolding."""

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from agentfly_core.recipes.blueprint.world import (
    BLOCKS,
    REACH,
    SCAFFOLDING,
    SIZE,
    Grid,
    Mask,
    Refusal,
    RefusedAction,
    Voxel,
    VoxelWorld,
    around,
    standable,
    touching,
)

Rung = tuple[Voxel, bool]
"""A cell for scaffolding, and whether the builder can also reach the cell above it."""


@dataclass(frozen=True)
class Construction:
    """The result of `build`.

    `missing` maps the cell of each missing block to the reason why the block was refused.
    `scaffolding` lists the cells that had scaffolding during the construction. `residue` lists the
    cells that still have scaffolding.
    """

    missing: dict[Voxel, Refusal]
    scaffolding: list[Voxel]
    residue: list[Voxel]


def build(world: VoxelWorld, target: Grid) -> Construction:
    """Build a target in an empty world as far as the rules allow. Then remove the scaffolding."""
    builder = _Builder(world, target)
    missing = builder.raised()
    return Construction(missing, builder.scaffolding, builder.cleared())


class _Builder:
    def __init__(self, world: VoxelWorld, target: Grid) -> None:
        self.world, self.target = world, target
        self.scaffolding: list[Voxel] = []

    def raised(self) -> dict[Voxel, Refusal]:
        """Place all blocks that can be placed.

        Return a dict from the cell of each missing block to the reason why the block was refused.
        """
        waiting = {(int(x), int(y), int(z)) for x, y, z in np.argwhere(self.target)}
        while True:
            before = len(waiting)
            refused = self._pass(waiting)
            blocked = [cell for cell, why in refused.items() if why is Refusal.OUT_OF_REACH]
            if len(waiting) == before and not (blocked and self._scaffold(blocked)):
                return refused

    def cleared(self) -> list[Voxel]:
        """Remove all scaffolding that can be removed.

        Return the cells that still have scaffolding.
        """
        left, before = self.scaffolding[::-1], -1
        while len(left) != before:
            before = len(left)
            left = [cell for cell in left if not self._removed(cell)]
        return left

    def _pass(self, waiting: set[Voxel]) -> dict[Voxel, Refusal]:
        """Try to place a block in each cell of `waiting`, from the ground upwards.

        Cells with a placed block are removed from `waiting`. Return a dict from each other cell to
        the reason why the block was refused.
        """
        heap = [(cell[2], cell) for cell in waiting]
        heapq.heapify(heap)
        refused = dict[Voxel, Refusal]()
        while heap:
            _, cell = heapq.heappop(heap)
            if cell not in waiting:
                continue
            try:
                self.world.place(BLOCKS[self.target[cell]], cell)
            except RefusedAction as error:
                refused[cell] = error.refusal
                continue
            waiting.discard(cell)
            refused.pop(cell, None)
            for one in around(cell):
                if refused.get(one) is Refusal.UNSUPPORTED:
                    heapq.heappush(heap, (one[2], one))
        return refused

    def _scaffold(self, blocked: Collection[Voxel]) -> bool:
        """Add scaffolding to let the builder reach one of the cells `blocked`.

        Returns False if no scaffolding could be added.
        """
        before = len(self.scaffolding)
        with suppress(RefusedAction):
            for cell in self._stairs(blocked):
                self.world.place(SCAFFOLDING, cell)
                self.scaffolding.append(cell)
        return len(self.scaffolding) > before

    def _stairs(self, blocked: Collection[Voxel]) -> list[Voxel]:
        """Find the shortest row of scaffolding from which the builder reaches a cell in `blocked`.

        The builder walks on the row to place the row's next scaffolding. The row contains no cell
        of the target. If no row is possible, the list is empty. The search is breadth-first.
        """
        grid = self.world.grid
        free = (grid == 0) & (self.target == 0)
        free[..., :-1] &= grid[..., 1:] == 0
        free[..., -1] = False
        near, goals = in_reach(standable(grid)), in_reach(mask(blocked))
        supported = touching(grid > 0) | (np.arange(SIZE) == 0)
        starts = np.argwhere(free & near & supported)
        first: list[Rung] = [((x, y, z), bool(near[x, y, z + 1])) for x, y, z in starts.tolist()]
        origins, queue = dict[Rung, Rung | None](dict.fromkeys(first)), deque(first)
        while queue:
            step = queue.popleft()
            (x, y, z), _ = step
            if goals[x, y, z + 1]:
                return list(_path(step, origins))[::-1]
            for further in _further(step, free):
                if further not in origins:
                    origins[further] = step
                    queue.append(further)
        return []

    def _removed(self, cell: Voxel) -> bool:
        with suppress(RefusedAction):
            self.world.remove(cell)
            return True
        return False


def _further(step: Rung, free: Mask) -> Iterator[Rung]:
    """Yield the free cells next to a scaffolding where more scaffolding can be placed.

    `step` has the cell of the scaffolding. The free cells at its four sides are yielded. The cell
    above is also yielded, if it is free and the builder can reach it.
    """
    cell, rises = step
    for one in around(cell):
        level = one[2] == cell[2]
        if free[one] and (level or (rises and one[2] > cell[2])):
            yield one, level


def _path(step: Rung | None, origins: dict[Rung, Rung | None]) -> Iterator[Voxel]:
    while step:
        yield step[0]
        step = origins[step]


def mask(cells: Collection[Voxel]) -> Mask:
    """Return a grid that is True in these cells."""
    made = np.zeros((SIZE, SIZE, SIZE), bool)
    made[tuple(np.array([*cells]).T)] = True
    return made


def in_reach(cells: Mask) -> Mask:
    """Return a mask that is True wherever another cell nearby is True in `cells`.

    Two cells are near each other if each of their coordinates differs by at most REACH.
    """
    counts = cells.astype(np.int32)
    for axis in range(3):
        sums = np.cumsum(
            np.pad(np.moveaxis(counts, axis, 0), ((REACH + 1, REACH), (0, 0), (0, 0))), 0
        )
        counts = np.moveaxis(sums[2 * REACH + 1 :] - sums[: -2 * REACH - 1], 0, axis)
    return counts > cells
