"""The environment in which an agent submits blueprints and builds them in a world of blocks."""

import json
from collections import Counter

import numpy as np

from agentfly_core import Environment, Problem
from agentfly_core.recipes.blueprint.builder import build
from agentfly_core.recipes.blueprint.drawing import MARGIN, drawn
from agentfly_core.recipes.blueprint.scoring import Fit, fit
from agentfly_core.recipes.blueprint.world import BLOCKS, SIZE, Grid, VoxelWorld

COMPLETE = "The building is complete."
MARKS = ".#SBPLGMAEDOINQWCYTXKFHUZ"
"""The characters of the block types in views, in the order of BLOCKS."""
SIDES = {"south": (1, 1), "north": (1, -1), "west": (0, 1), "east": (0, -1)}
"""For each side of a building: the axis along which one looks, and the direction (1 or -1)."""


class Plot(Environment):
    """The world of blocks in one episode. The episode's problem describes a building.

    In `Problem.facts`, `parts` has the name and the blueprint of each part of the building. The
    optional entry `stock` has the number of blocks of each type. Each call of `build` starts with
    this stock. Without `stock`, the number of blocks is unlimited:

        {"parts": [["floor", "box slate 0 0 0 6 4 0"], ...], "stock": {"slate": 35}}

    `submit`, `build`, `inspect` and `fit` raise ToolError for a blueprint that cannot be read.
    """

    async def reset(self, problem: Problem) -> None:
        """Reset the world and the blueprint. Raises KeyError if `problem.facts` lacks `parts`."""
        self._parts, self._stock = dict(problem.facts["parts"]), problem.facts.get("stock")
        self.blueprint, self.world = "", VoxelWorld(self._stock)

    def submit(self, blueprint: str) -> str:
        """Replace the submitted blueprint. Return a text such as "The blueprint has 35 slate."."""
        grid = drawn(blueprint)
        self.blueprint = blueprint
        return f"The blueprint has {_counts(grid)}."

    def build(self) -> str:
        """Clear the world, and build the submitted blueprint in it.

        Returns a text about the built and the missing blocks.
        """
        self.world = VoxelWorld(self._stock)
        done = build(self.world, drawn(self.blueprint))
        lines = [f"Built: {_counts(self.world.grid)}."]
        if done.scaffolding:
            used, kept = len(done.scaffolding), len(done.residue)
            lines.append(f"{used} cells had scaffolding, {kept} keep it.")
        reasons = Counter(done.missing.values())
        for reason, count in reasons.items():
            x, y, z = next(cell for cell, why in done.missing.items() if why is reason)
            first = (x - MARGIN, y - MARGIN, z)
            lines.append(f"{count} blocks are missing; the first cell, {first}, {reason}.")
        return "\n".join(lines)

    def inspect(self) -> str:
        """Return views from four sides, and the number of wrong cells per part of the building."""
        now = self.fit
        parts = [
            f"{name}: {count} cells are wrong" if count else f"{name}: complete"
            for name, count in now.wrong.items()
        ]
        last = (
            COMPLETE
            if now.value == 1
            else f"Blocks outside of the building: {now.extra:.0%} of it."
        )
        return "\n".join([views(self.world.grid), *parts, last])

    def materials(self) -> str:
        """Return the blocks in stock as JSON, or all block types if the stock is unlimited."""
        if self.world.stock is None:
            return f"All without limit: {', '.join(BLOCKS[1:])}."
        stock = {name: count for name, count in sorted(self.world.stock.items()) if count}
        return json.dumps(stock)

    @property
    def fit(self) -> Fit:
        """The comparison of the built blocks with the building that the problem describes."""
        return fit(self.world.grid, self._parts)

    async def snapshot(self) -> bytes:
        world = self.world.grid.tobytes().hex(), self.world.stock
        return json.dumps([self.blueprint, *world]).encode()

    async def restore(self, snapshot: bytes) -> None:
        self.blueprint, grid, stock = json.loads(snapshot)
        self.world = VoxelWorld(stock)
        self.world.grid[:] = np.frombuffer(bytes.fromhex(grid), np.uint8).reshape((SIZE,) * 3)


def views(grid: Grid) -> str:
    """Draw the building as seen from each of the four sides, with a legend of the blocks.

    Each view is text with one character per cell, and its first row is the top of the building.
    """
    if not grid.any():
        return "The plot is empty."
    spans = [slice(min(axis), max(axis) + 1) for axis in np.nonzero(grid)]
    lines = list[str]()
    for side, (axis, step) in SIDES.items():
        depth = np.moveaxis(grid[tuple(spans)], axis, 0)[::step]
        nearest = np.take_along_axis(depth, (depth > 0).argmax(0)[None], 0)[0]
        # seen from the south, east is on the right
        nearest = nearest[:: -step if axis == 0 else step]
        rows = ["".join(MARKS[block] for block in row) for row in nearest.T[::-1]]
        lines += [f"{side}:", *rows]
    legend = [f"{MARKS[block]} {BLOCKS[block]}" for block in np.unique(grid) if block]
    return "\n".join([*lines, ", ".join(legend)])


def _counts(grid: Grid) -> str:
    """Count the blocks by type: "35 slate, 2 door"."""
    numbers, counts = np.unique(grid[grid > 0], return_counts=True)
    blocks = [f"{count} {BLOCKS[n]}" for n, count in zip(numbers, counts, strict=True)]
    return ", ".join(blocks) or "no blocks"
