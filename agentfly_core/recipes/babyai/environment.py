"""BabyAI missions in MiniGrid grids. The player's view is described in words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from agentfly_core import Environment, Problem, digest, require_package

if TYPE_CHECKING:
    from minigrid.core.world_object import WorldObj
    from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "open or close")
"""The actions. An action's index in this tuple is its number in MiniGrid."""
DOORS = ("open ", "closed ", "locked ")
"""The states of a door. A state's index in this tuple is its number in MiniGrid."""
THINGS = ("door", "key", "ball", "box")


class BabyAI(Environment):
    """A level of BabyAI (arXiv 1810.08272). The facts of a problem determine the grid:

        {"level": "BabyAI-PickupDist-v0", "seed": 4711, "mission": "pick up the green key"}

    After a solved mission, `solved` and `over` are True. At the level's step limit, only `over` is
    True. The environment needs the package minigrid (the extra `babyai`).
    """

    async def reset(self, problem: Problem) -> None:
        """Make the grid of the problem.

        Raises KeyError if the fact `level`, `seed` or `mission` is missing. Raises ValueError for
        an unknown level, or if minigrid's mission for the grid differs from the fact `mission`.
        """
        facts = problem.facts
        self._grid, self._seed = level(facts["level"]), facts["seed"]
        drawn = self._begin()
        if drawn != facts["mission"]:
            raise ValueError(
                f"{facts['level']} with seed {facts['seed']} has the mission {drawn!r}, expected "
                f"{facts['mission']!r}. Prepare the problems again, with the installed minigrid."
            )

    def act(self, action: str, times: int) -> None:
        """Do an action of ACTIONS `times` times. Stop earlier if the mission ends."""
        for _ in range(times):
            if self.over:
                return
            self._step(ACTIONS.index(action))

    def view(self) -> str:
        return view_text(self._grid)

    def state_key(self) -> str:
        """Return a digest of the grid, the player, the carried object, and the value of `over`."""
        # MiniGrid's hash leaves out the carried object
        carried = self._grid.carrying
        held = f"{carried.color} {carried.type}" if carried else ""
        return digest([self._grid.hash(64), held, self.over])

    async def snapshot(self) -> bytes:
        """Return all actions so far. Each byte is the index of an action in ACTIONS."""
        return bytes(self._done)

    async def restore(self, snapshot: bytes) -> None:
        """Reset the grid and repeat the actions of a snapshot."""
        self._begin()
        for number in snapshot:
            self._step(number)

    def _begin(self) -> str:
        self.solved = self.over = False
        self._done = list[int]()
        return mission(self._grid, self._seed)

    def _step(self, number: int) -> None:
        _, reward, done, late, _ = self._grid.step(cast(Any, number))
        self.solved, self.over = float(reward) > 0, done or late
        self._done.append(number)


def level(name: str) -> RoomGridLevel:
    """Make a grid of this level, without a mission. Raises ValueError for an unknown level."""
    levels = sorted(env for env in _gymnasium().registry if env.startswith("BabyAI-"))
    if name not in levels:
        raise ValueError(f"Got the level {name!r}, expected one of {', '.join(levels)}.")
    return cast("RoomGridLevel", _gymnasium().make(name, disable_env_checker=True).unwrapped)


def mission(grid: RoomGridLevel, seed: int) -> str:
    """Reset a grid with a seed and return its mission."""
    grid.reset(seed=seed)
    return str(grid.mission)


def view_text(grid: RoomGridLevel) -> str:
    """Describe the player's view: visible objects, distances to walls, and the carried object.

    Objects in the nearest row come first:

        "red ball 2 ahead 1 left, blue key 1 right; wall 3 ahead, 2 left; you carry a grey box"

    MiniGrid's view has seven by seven cells: up to six ahead, and up to three to each side.
    """
    seen, visible = grid.gen_obs_grid()
    middle, here = seen.width // 2, seen.height - 1
    cells = {
        (here - y, x - middle): cell
        for x, y in np.argwhere(visible)
        if (x, y) != (middle, here) and (cell := seen.get(x, y))
    }
    things = [
        f"{_looks(cell)} {_place(*where)}"
        for where, cell in sorted(cells.items())
        if cell.type in THINGS
    ]
    lines = {"ahead": (1, 0), "left": (0, -1), "right": (0, 1)}
    walls = [
        f"{far} {side}"
        for side, (ahead, aside) in lines.items()
        for far in range(1, seen.height)
        if (cell := cells.get((far * ahead, far * aside))) and cell.type == "wall"
    ]
    parts = [", ".join(things) or "nothing", f"wall {', '.join(walls)}" if walls else ""]
    parts.append(f"you carry a {_looks(grid.carrying)}" if grid.carrying else "")
    return "; ".join(filter(None, parts))


def _looks(cell: WorldObj) -> str:
    """Describe an object: `red ball`, `open grey door`."""
    _, _, number = cell.encode()
    state = DOORS[number] if cell.type == "door" else ""
    return f"{state}{cell.color} {cell.type}"


def _place(ahead: int, aside: int) -> str:
    """Describe a position relative to the player: `2 ahead 1 left`."""
    sideways = f"{abs(aside)} {'left' if aside < 0 else 'right'}" if aside else ""
    return " ".join(filter(None, [f"{ahead} ahead" if ahead else "", sideways]))


@cache
def _gymnasium() -> Any:
    """Import minigrid, which registers the levels in gymnasium. Return the module gymnasium."""
    require_package("minigrid==3.2.0", "babyai")
    import gymnasium
    import minigrid  # noqa: F401
    from minigrid.envs.babyai.core import roomgrid_level

    vars(roomgrid_level)["print"] = lambda *_: None  # MiniGrid prints each rejected layout
    return gymnasium
