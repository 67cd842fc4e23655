"""A world of 24 x 24 x 24 cells, with rules for placing and removing blocks."""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from agentfly_core import ToolError

SIZE, REACH = 24, 4
AIR, SCAFFOLDING = "air", "scaffolding"
BLOCKS = (
    *(AIR, SCAFFOLDING, "stone", "brick", "planks", "log", "glass", "marble", "slate"),
    *("granite", "sandstone", "copper", "iron", "gold", "quartz", "wool", "clay", "sand"),
    *("dirt", "ice", "lamp", "door", "fence", "tile", "cobble"),
)
"""The types of blocks. A grid contains an index in this tuple for each cell; 0 is air."""
RECIPES: Mapping[str, tuple[str, int]] = {
    "planks": ("log", 4),
    "scaffolding": ("planks", 8),
    "fence": ("planks", 1),
    "door": ("planks", 1),
    "glass": ("sand", 1),
    "brick": ("clay", 1),
    "tile": ("clay", 2),
    "stone": ("cobble", 1),
}
"""Crafted blocks: `{"planks": ("log", 4)}` means that one log makes four planks."""
Voxel = tuple[int, int, int]
"""The coordinates of a cell, from 0 to SIZE - 1: to the east, to the north, and upwards."""
Grid = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class Refusal(StrEnum):
    """The reason why the world refuses an action, such as "is out of reach"."""

    OUTSIDE = "is outside of the world"
    OCCUPIED = "has a block already"
    EMPTY = "has no block"
    UNSUPPORTED = "is next to no block and not on the ground"
    OUT_OF_REACH = "is out of reach"
    OUT_OF_STOCK = "needs a block that is not in stock"
    FLOATS = "cannot lose its block, because others would float"


class RefusedAction(ToolError):
    """Raised for an action that breaks a rule of the world. The action changes nothing."""

    def __init__(self, refusal: Refusal, cell: Voxel) -> None:
        super().__init__(f"The cell {cell} {refusal}.")
        self.refusal = refusal


class VoxelWorld:
    """Blocks in a grid above solid ground, and a stock of blocks that can be placed.

    - If `stock` is None, the number of blocks is unlimited.
    - A new block must touch another block or the ground.
    - To place or remove a block, the builder must be in a cell near the block. This cell must be
      empty, and on top of a block or on the ground. On each axis, the distance between this cell
      and the cell of the block must be at most REACH. The builder can walk to all such cells.
    - A removed block returns to the stock. A removal is refused if other blocks would lose their
      connection with the ground.
    """

    def __init__(self, stock: Mapping[str, int] | None = None) -> None:
        self.grid: Grid = np.zeros((SIZE, SIZE, SIZE), np.uint8)
        self.stock = None if stock is None else Counter(stock)

    def place(self, block: str, cell: Voxel) -> None:
        """Place a block from the stock. If the stock has none, craft the block from other blocks.

        Raises RefusedAction if the action breaks a rule of the world.
        """
        self._require(not self.grid[self._inside(cell)], Refusal.OCCUPIED, cell)
        self._require(self._supported(cell), Refusal.UNSUPPORTED, cell)
        self._require(self._reaches(cell), Refusal.OUT_OF_REACH, cell)
        if self.stock is not None:
            self._require(self._has(block), Refusal.OUT_OF_STOCK, cell)
            self.stock[block] -= 1
        self.grid[cell] = BLOCKS.index(block)

    def remove(self, cell: Voxel) -> None:
        """Remove the block in a cell and return it to the stock.

        Raises RefusedAction if the action breaks a rule of the world.
        """
        number = int(self.grid[self._inside(cell)])
        self._require(number > 0, Refusal.EMPTY, cell)
        self._require(self._reaches(cell), Refusal.OUT_OF_REACH, cell)
        self.grid[cell] = 0
        if not all(self._is_grounded(one) for one in around(cell) if self.grid[one]):
            self.grid[cell] = number
            raise RefusedAction(Refusal.FLOATS, cell)
        if self.stock is not None:
            self.stock[BLOCKS[number]] += 1

    def _has(self, block: str) -> bool:
        """Return whether the stock has the block. A missing block is crafted if possible."""
        assert self.stock is not None
        if self.stock[block] > 0:
            return True
        ingredient, products = RECIPES.get(block, ("", 0))
        if not products or not self._has(ingredient):
            return False
        self.stock[ingredient] -= 1
        self.stock[block] += products
        return True

    def _inside(self, cell: Voxel) -> Voxel:
        self._require(all(0 <= one < SIZE for one in cell), Refusal.OUTSIDE, cell)
        return cell

    def _supported(self, cell: Voxel) -> bool:
        return cell[2] == 0 or any(self.grid[one] for one in around(cell))

    def _reaches(self, cell: Voxel) -> bool:
        window = tuple(slice(max(0, one - REACH), one + REACH + 1) for one in cell)
        places = standable(self.grid[window[0], window[1]])[:, :, window[2]]
        # the new block fills its own cell, which is then no standing place
        own = standable(self.grid[cell[:2]])[cell[2]]
        return bool(np.count_nonzero(places) > own)

    def _is_grounded(self, cell: Voxel) -> bool:
        """Whether a block is on the ground, or other blocks connect it with the ground."""
        seen, open_ = {cell}, [cell]
        while open_:
            cell = open_.pop()
            if cell[2] == 0:
                return True
            new = [one for one in around(cell) if self.grid[one] and one not in seen]
            seen.update(new)
            open_ += new
        return False

    @staticmethod
    def _require(holds: bool, refusal: Refusal, cell: Voxel) -> None:
        if not holds:
            raise RefusedAction(refusal, cell)


def around(cell: Voxel) -> Iterator[Voxel]:
    """Yield the neighbours of a cell that are within the world. The cell below comes last."""
    x, y, z = cell
    for one in ((x, y, z + 1), (x + 1, y, z), (x - 1, y, z), (x, y + 1, z), (x, y - 1, z)):
        if all(0 <= value < SIZE for value in one):
            yield one
    if z:
        yield x, y, z - 1


def standable(grid: Grid) -> Mask:
    """Return the empty cells on top of a block or on the ground.

    The last axis of the grid is the height.
    """
    above: Mask = np.ones(grid.shape, bool)
    above[..., 1:] = grid[..., :-1] > 0
    above &= grid == 0
    return above


def touching(cells: Mask) -> Mask:
    """Return the cells that have a neighbour in `cells`."""
    padded = np.pad(cells, 1)
    near = np.zeros(cells.shape, bool)
    for axis in range(3):
        for shift in (-1, 1):
            near |= np.roll(padded, shift, axis)[1:-1, 1:-1, 1:-1]
    return near
