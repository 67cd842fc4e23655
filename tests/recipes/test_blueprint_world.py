"""The world of blocks against a slow simulator of its own, and the builder on random targets."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from agentfly_core.recipes.blueprint import world
from agentfly_core.recipes.blueprint.builder import build
from agentfly_core.recipes.blueprint.world import (
    BLOCKS,
    RECIPES,
    SIZE,
    Grid,
    Mask,
    Refusal,
    RefusedAction,
    Voxel,
    VoxelWorld,
)

SEED = 5104
SIDES = ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))
STOCK = {"log": 20, "stone": 60, "clay": 30, "sand": 5}


class SlowWorld:
    """The rules again, by a dictionary of blocks and complete searches."""

    def __init__(self, stock: dict[str, int]) -> None:
        self.blocks: dict[Voxel, str] = {}
        self.stock = dict(stock)

    def filled(self, cell: Voxel) -> bool:
        return cell in self.blocks or cell[2] == -1

    def sides(self, cell: Voxel) -> list[Voxel]:
        return [tuple(a + b for a, b in zip(cell, side, strict=True)) for side in SIDES]

    def in_reach(self, cell: Voxel) -> bool:
        spans = [range(max(0, one - 4), min(SIZE, one + 5)) for one in cell]
        return any(
            place != cell and not self.filled(place) and self.filled((*place[:2], place[2] - 1))
            for place in product(*spans)
        )

    def floats(self) -> bool:
        linked = {cell for cell in self.blocks if cell[2] == 0}
        new = linked
        while new := {s for cell in new for s in self.sides(cell) if s in self.blocks} - linked:
            linked = linked | new
        return linked != self.blocks.keys()

    def take(self, block: str) -> bool:
        if not self.stock.get(block):
            if block not in RECIPES or not self.take(RECIPES[block][0]):
                return False
            self.stock[block] = RECIPES[block][1]
        self.stock[block] -= 1
        return True

    def act(self, block: str, cell: Voxel) -> Refusal | None:
        """Place a block; air removes one."""
        removes = block == "air"
        if min(cell) < 0 or max(cell) >= SIZE:
            return Refusal.OUTSIDE
        if removes and cell not in self.blocks:
            return Refusal.EMPTY
        if not removes and cell in self.blocks:
            return Refusal.OCCUPIED
        if not removes and not any(self.filled(side) for side in self.sides(cell)):
            return Refusal.UNSUPPORTED
        if not self.in_reach(cell):
            return Refusal.OUT_OF_REACH
        if not removes:
            if not self.take(block):
                return Refusal.OUT_OF_STOCK
            self.blocks[cell] = block
            return None
        block = self.blocks.pop(cell)
        if self.floats():
            self.blocks[cell] = block
            return Refusal.FLOATS
        self.stock[block] = self.stock.get(block, 0) + 1
        return None


def acted(fast: VoxelWorld, block: str, cell: Voxel) -> Refusal | None:
    try:
        fast.remove(cell) if block == "air" else fast.place(block, cell)
    except RefusedAction as error:
        return error.refusal
    return None


def worth(stock: Counter[str], grid: Grid) -> float:
    """The content of stock and world in raw blocks."""
    names = Counter({BLOCKS[n]: int(count) for n, count in enumerate(np.bincount(grid.flat)) if n})

    def value(block: str) -> float:
        ingredient, products = RECIPES.get(block, ("", 1))
        return value(ingredient) / products if ingredient else 1.0

    return sum(value(block) * count for block, count in (stock + names).items())


@pytest.mark.slow
def test_10000_random_steps_equal_a_slow_simulator() -> None:
    draw = random.Random(SEED)
    fast, slow = VoxelWorld(STOCK), SlowWorld(STOCK)
    begin, seen = worth(fast.stock, fast.grid), Counter[Refusal | None]()
    for _ in range(10_000):
        column = (draw.randint(-1, 4), draw.randint(0, 3))
        top = next(z for z in range(SIZE + 1) if (*column, z) not in slow.blocks)
        cell = (*column, top + draw.choice((-1, -1, -1, 0, 0, 0, 0, 0, 1, 5)))
        block = draw.choice(("air", "planks", "brick", "glass", "scaffolding", "stone", "stone"))
        refusal = slow.act(block, cell)
        assert acted(fast, block, cell) == refusal
        seen[refusal] += 1
        assert fast.stock == Counter(slow.stock)
        if not refusal:
            assert fast.grid[cell] == BLOCKS.index(slow.blocks.get(cell, "air"))
            assert not floating(fast.grid).any()
    assert {*seen} == {None, *Refusal}
    assert worth(fast.stock, fast.grid) == pytest.approx(begin)


def floating(grid: Grid) -> Mask:
    """The cells of all blocks that no chain of blocks connects with the ground."""
    left = grid > 0
    edge = left & (np.arange(SIZE) == 0)
    while edge.any():
        left &= ~edge
        edge = left & world.touching(edge)
    return left


def arm(draw: random.Random) -> Grid:
    """A pole with an arm, from which a chain hangs down."""
    target = np.zeros((SIZE,) * 3, np.uint8)
    x, y, height, length = (draw.randint(*ends) for ends in ((7, 16), (7, 16), (9, 20), (2, 5)))
    along, across = draw.choice(SIDES[:4])[:2]
    target[x, y, : height + 1] = 2
    for step in range(1, length + 1):
        target[x + along * step, y + across * step, height] = 3
    chain = draw.randint(4, height - 2)
    target[x + along * length, y + across * length, height - chain : height] = 4
    return target


def growth(draw: random.Random) -> Grid:
    """Random blocks, each with an earlier neighbour."""
    target = np.zeros((SIZE,) * 3, np.uint8)
    cells = [(draw.randint(4, 19), draw.randint(4, 19), 0)]
    for _ in range(draw.randint(20, 300)):
        target[cells[-1]] = draw.randrange(2, len(BLOCKS))
        empty = [one for one in world.around(draw.choice(cells)) if not target[one]]
        cells.append(draw.choice(empty) if empty else cells[-1])
    return target


@pytest.mark.parametrize("shape", [arm, growth])
def test_the_builder_builds_all_connected_targets(shape: Callable[[random.Random], Grid]) -> None:
    scaffolded = 0
    for number in range(60):
        made, target = VoxelWorld(), shape(random.Random(f"{SEED} {number}"))
        done = build(made, target)
        assert (done.missing, done.residue) == ({}, [])
        assert np.array_equal(made.grid, target)
        scaffolded += bool(done.scaffolding)
    assert scaffolded == 60 or shape is growth


def test_arms_need_an_order_and_scaffolding() -> None:
    failed = 0
    for number in range(60):
        draw = random.Random(f"{SEED} {number}")
        target, made = arm(draw), VoxelWorld()
        cells = [tuple(map(int, cell)) for cell in np.argwhere(target)]
        draw.shuffle(cells)
        failed += [acted(made, BLOCKS[target[cell]], cell) for cell in cells] != [None] * len(cells)
    assert failed >= 48


def test_blocks_without_a_way_to_the_ground_are_named() -> None:
    for number in range(20):
        draw = random.Random(f"{SEED} {number}")
        made, target = VoxelWorld(), growth(draw)
        for _ in range(3):
            x, y, z = (draw.randint(0, 20) for _ in range(3))
            target[x : x + 2, y, z] = 5
        apart = {tuple(map(int, cell)) for cell in np.argwhere(floating(target))}
        assert build(made, target).missing.keys() == apart


def test_a_full_world_has_no_room_for_its_last_block() -> None:
    made, full = VoxelWorld(), np.full((SIZE,) * 3, 2, np.uint8)
    assert [*build(made, full).missing.values()] == [Refusal.OUT_OF_REACH]


def test_a_builder_without_blocks_names_the_missing_ones() -> None:
    made, target = VoxelWorld({"planks": 1, "log": 1}), np.zeros((SIZE,) * 3, np.uint8)
    target[4:11, 4, 0] = BLOCKS.index("planks")
    missing = build(made, target).missing
    assert len(missing) == 2 and {*missing.values()} == {Refusal.OUT_OF_STOCK}
