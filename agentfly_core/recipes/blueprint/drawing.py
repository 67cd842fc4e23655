"""Blueprints: lines of text that place blocks in the world."""

import re
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from agentfly_core import ToolError
from agentfly_core.recipes.blueprint.world import BLOCKS, SIZE, Grid, Voxel

MARGIN = 2
"""The width in cells of the free border around the building plot, for scaffolding."""
PLOT: Voxel = (SIZE - 2 * MARGIN, SIZE - 2 * MARGIN, SIZE)
MOST_LINES = 200
FORMS = """\
box BLOCK x y z x y z: fill all cells between two corners
hollow_box BLOCK x y z x y z: the six sides of a box
line BLOCK x y z x y z: a straight line
stairs BLOCK x y z x y z: filled stairs that rise from the first corner to the second
replace OLD NEW x y z x y z: other blocks in a box
mirror AXIS n: each block at x also at n - x; AXIS is x or y"""
_NUMBERS = r" (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)"
_LINE = re.compile(
    rf"(?P<form>box|hollow_box|line|stairs) (?P<block>\w+){_NUMBERS}"
    rf"|replace (?P<old>\w+) (?P<new>\w+){_NUMBERS}"
    r"|mirror (?P<axis>[xy]) (?P<sum>\d+)"
)


def drawn(blueprint: str) -> Grid:
    """Convert a blueprint, such as "box stone 0 0 0 4 4 0", to a world: an array of block types.

    Later lines overwrite earlier lines, and the block `air` removes blocks. Raises ToolError for
    more than 200 lines. Also raises ToolError for a line that cannot be read, and quotes this line
    in the message.
    """
    grid: Grid = np.zeros((SIZE, SIZE, SIZE), np.uint8)
    lines = [line.strip() for line in blueprint.splitlines() if line.strip()]
    if len(lines) > MOST_LINES:
        raise ToolError(f"The blueprint has {len(lines)} lines, at most {MOST_LINES} are allowed.")
    for number, line in enumerate(lines, start=1):
        try:
            _draw(line, grid)
        except ValueError as error:
            raise ToolError(f"Line {number} of the blueprint, {line[:60]!r}: {error}") from None
    return grid


def _draw(line: str, grid: Grid) -> None:
    """Draw one line of a blueprint on the grid.

    Raises ValueError for an unknown form or block, or for coordinates outside of the plot.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"expected one of these forms:\n{FORMS}")
    if match["axis"]:
        _mirror("xy".index(match["axis"]), int(match["sum"]), grid)
        return
    numbers = [int(word) for word in match.groups() if word and word.isdecimal()]
    first, second = _cell(numbers[:3]), _cell(numbers[3:])
    if match["form"]:
        block = _number(match["block"])
        for cell in SHAPES[match["form"]](first, second):
            grid[_in_world(cell)] = block
        return
    old, new = _number(match["old"]), _number(match["new"])
    for cell in map(_in_world, box(first, second)):
        grid[cell] = new if grid[cell] == old else grid[cell]


def box(first: Voxel, second: Voxel) -> Iterator[Voxel]:
    """Return all cells between two corners, both included."""
    a, b, c = (range(min(ends), max(ends) + 1) for ends in zip(first, second, strict=True))
    return product(a, b, c)


def hollow_box(first: Voxel, second: Voxel) -> Iterator[Voxel]:
    """Yield the cells of the six sides of a box."""
    ends = [*zip(first, second, strict=True)]
    for cell in box(first, second):
        if any(one in pair for one, pair in zip(cell, ends, strict=True)):
            yield cell


def line(first: Voxel, second: Voxel) -> Iterator[Voxel]:
    """Yield the cells nearest to the straight line between two cells."""
    steps = max(abs(a - b) for a, b in zip(first, second, strict=True))
    yield from np.rint(np.linspace(first, second, steps + 1)).astype(int).tolist()


def stairs(first: Voxel, second: Voxel) -> Iterator[Voxel]:
    """Yield the cells of filled stairs between two corners.

    At the first corner, the stairs are one block high. They rise by one block per cell along the
    longer horizontal side, and do not exceed the height of the higher corner.
    """
    sides = [abs(a - b) for a, b in zip(first[:2], second[:2], strict=True)]
    along = 0 if sides[0] >= sides[1] else 1
    for cell in box(first, second):
        if cell[2] - min(first[2], second[2]) <= abs(cell[along] - first[along]):
            yield cell


SHAPES: dict[str, Callable[[Voxel, Voxel], Iterator[Voxel]]] = {
    "box": box,
    "hollow_box": hollow_box,
    "line": line,
    "stairs": stairs,
}


def _mirror(axis: int, total: int, grid: Grid) -> None:
    for cell in np.argwhere(grid).tolist():
        block = grid[tuple(cell)]
        cell[axis] = total - (cell[axis] - MARGIN) + MARGIN
        if MARGIN <= cell[axis] < SIZE - MARGIN and not grid[tuple(cell)]:
            grid[tuple(cell)] = block


def _cell(numbers: list[int]) -> Voxel:
    if any(one >= size for one, size in zip(numbers, PLOT, strict=True)):
        raise ValueError(f"the largest coordinates are {[size - 1 for size in PLOT]}")
    x, y, z = numbers
    return x, y, z


def _in_world(cell: Voxel) -> Voxel:
    return cell[0] + MARGIN, cell[1] + MARGIN, cell[2]


def _number(block: str) -> int:
    if block not in BLOCKS:
        raise ValueError(f"there is no block {block!r}. There are: {', '.join(BLOCKS)}")
    return BLOCKS.index(block)
