"""Demonstrations of BabyAI missions in one room, computed from the mission and the views alone."""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product, takewhile
from typing import TYPE_CHECKING, Any, cast

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, called, mistake, observed
from agentfly_core.recipes.babyai.environment import ACTIONS, view_text
from agentfly_core.recipes.babyai.tools import DONE, OVER

if TYPE_CHECKING:
    from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

MISTAKES = ("other thing", "wander")
MOST_CALLS = 12
"""The maximum number of calls of the tool `act` in an episode. It equals `agent.max_turns` in
conf/babyai.yaml.
"""
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
PORTABLE = ("key", "ball", "box")
_THING = re.compile(
    rf"\b(?:an? |the )((?:(?:{'|'.join(COLORS)}) )?(?:{'|'.join(PORTABLE)}|door|object))"
)
Cell = complex
"""A cell as the complex number column + row * 1j. The player's first cell is 0.

Directions are complex numbers, too. A direction times 1j is the direction after a right turn.
"""
_TURNS = {"turn left": -1j, "turn right": 1j}
_AHEAD, _ASIDE = range(7), range(-3, 4)
"""Offsets of visible cells from the player, in cells: `_AHEAD` in front, `_ASIDE` to the right.

Negative offsets in `_ASIDE` are to the left.
"""
_PLACE = re.compile(r"(\d+) (ahead|left|right)")
_CARRIED = "you carry a "


@dataclass(frozen=True, slots=True)
class Pose:
    """The player's cell and viewing direction, as complex numbers.

    An episode begins at `Pose(0, 1)`: the player is in cell 0 and looks at cell 1.
    """

    cell: Cell
    looks: Cell

    def at(self, ahead: int, right: int) -> Cell:
        """Return the cell that is `ahead` cells in front of the player and `right` cells to the
        right.
        """
        return self.cell + self.looks * complex(ahead, right)

    def after(self, action: str, times: int = 1) -> Pose:
        """Return the pose after doing an action `times` times.

        The function assumes that nothing blocks the player.
        """
        if action == "go forward":
            return Pose(self.at(times, 0), self.looks)
        return Pose(self.cell, self.looks * _TURNS.get(action, 1) ** times)


@dataclass(slots=True)
class Room:
    """The part of a room that the player has seen.

    `things` maps cells to objects. `free` has all seen cells within the walls, including cells with
    an object. `walls` has all other seen cells. `carried` is the object that the player carries, or
    "".
    """

    things: dict[Cell, str] = field(default_factory=dict)
    free: set[Cell] = field(default_factory=set)
    walls: set[Cell] = field(default_factory=set)
    carried: str = ""

    def see(self, view: str, pose: Pose) -> None:
        """Add the player's view at `pose` (cell and direction) to the seen part of the room.

        `view` is a text made by `environment.view_text`.
        """
        listed, *others = view.split("; ")
        far = {"ahead": 7, "left": 4, "right": 4}
        self.carried = ""
        for part in others:
            far |= {side: int(n) for n, side in _PLACE.findall(part)}
            self.carried = part.removeprefix(_CARRIED) if part.startswith(_CARRIED) else ""
        for ahead, right in product(_AHEAD, _ASIDE):
            inside = ahead < far["ahead"] and -far["left"] < right < far["right"]
            cell = pose.at(ahead, right)
            (self.free if inside else self.walls).add(cell)
            self.things.pop(cell, None)
        for thing in listed.split(", ") if listed != "nothing" else []:
            side = {side: int(n) for n, side in _PLACE.findall(thing)}
            cell = pose.at(side.get("ahead", 0), side.get("right", 0) - side.get("left", 0))
            self.things[cell] = " ".join(thing.split()[:2])

    def is_free(self, cell: Cell) -> bool:
        """Whether a cell was seen and contains neither a wall nor an object."""
        return cell in self.free and cell not in self.things

    def way(self, start: Pose, is_goal: Callable[[Cell], bool]) -> list[str] | None:
        """Return the shortest list of actions after which the player faces a goal cell.

        `is_goal` returns True for a goal cell. The path leads through seen, empty cells only. The
        result is None if no such path exists.
        """
        ways: dict[Pose, list[str]] = {start: []}
        waiting = deque([start])
        while waiting:
            pose = waiting.popleft()
            if is_goal(pose.at(1, 0)):
                return ways[pose]
            for action in ACTIONS[:3]:
                after = pose.after(action)
                if after not in ways and self.is_free(after.cell):
                    ways[after] = [*ways[pose], action]
                    waiting.append(after)
        return None


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a mission: `Goal("put", "red ball", "blue key")`.

    The verb is "go to", "pick up" or "put". For "put", the player puts the object `thing` next to
    the object `beside`. For the other verbs, `beside` is empty.
    """

    verb: str
    thing: str
    beside: str = ""

    @classmethod
    def of(cls, mission: str) -> Goal:
        """Parse a mission such as "put the red ball next to the blue key".

        Raises ValueError if the mission does not begin with "go to", "pick up" or "put", or has a
        wrong number of objects.
        """
        for verb, number in {"go to": 1, "pick up": 1, "put": 2}.items():
            if mission.startswith(f"{verb} ") and len(things := named(mission)) == number:
                return cls(verb, *things)
        raise ValueError(
            f"Got the mission {mission!r}, expected 'go to A', 'pick up A' or 'put A next to B'."
        )

    def next_actions(self, room: Room, pose: Pose) -> list[str]:
        """Return the actions for the next step towards the goal.

        The target is the object `thing`. If `thing` is carried and must be put down, the target is
        a cell next to the object `beside`. If a path through seen cells leads to the target, the
        actions follow this path, and end for example with "pick up". Otherwise the actions lead to
        an unseen cell. If no unseen cell can be reached, the only action is
        "turn right".
        """
        if self.verb == "put" and room.carried:
            way, last = room.way(pose, partial(self._is_beside, room)), "drop"
        else:
            way = room.way(pose, lambda cell: fits(room.things.get(cell, ""), self.thing))
            last = "go forward" if self.verb == "go to" else "pick up"
        if way is None:
            return room.way(pose, lambda cell: cell not in room.free | room.walls) or ["turn right"]
        return [*way, last]

    def next_call(self, room: Room, pose: Pose) -> tuple[str, int]:
        """Return the first action of `next_actions`, and the number of times to repeat this action.

        For the actions `["go forward", "go forward", "pick up"]`, return `("go forward", 2)`.
        """
        action, *others = self.next_actions(room, pose)
        return action, 1 + len([*takewhile(action.__eq__, others)])

    def _is_beside(self, room: Room, cell: Cell) -> bool:
        around = (room.things.get(cell + side, "") for side in (1, -1, 1j, -1j))
        return room.is_free(cell) and any(fits(thing, self.beside) for thing in around)


def babyai(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that solves missions in one room with the tool `act`.

    A mission is to go to an object, to pick it up, or to put it next to another object. `spoilt` is
    the share of episodes with a mistake: the policy takes a wrong object, or moves at random.
    """

    async def policy(conversation: Conversation) -> str:
        mission, first = conversation.problem.prompt.splitlines()
        views = [first, *observed(conversation)]
        if views[-1] in (DONE, OVER):
            return views[-1]
        goal = Goal.of(mission)
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        if wrong == "wander":
            draw = random.Random(conversation.seed)
            return call_text("act", action=draw.choice(ACTIONS[:3]), times=draw.randint(1, 3))
        room, pose = Room(), Pose(0, 1)
        room.see(first, pose)
        if wrong == "other thing":
            others = [thing for thing in room.things.values() if not fits(thing, goal.thing)]
            unseen = "grey box" if fits("red key", goal.thing) else "red key"
            goal = replace(goal, thing=others[0] if others else unseen)
        for call, view in zip(called(conversation), views[1:], strict=True):
            pose = pose.after(str(call.arguments["action"]), int(str(call.arguments["times"])))
            room.see(view, pose)
        action, times = goal.next_call(room, pose)
        return call_text("act", action=action, times=times)

    return policy


def solvable(grid: RoomGridLevel, mission: str, seen: str) -> bool:
    """Whether the demonstration policy solves a new grid with at most MOST_CALLS calls of `act`.

    `seen` is the text of the first view. The function executes the policy's actions, which changes
    the grid. For missions that the policy does not support, such as missions in several rooms, the
    result is True, and no action is executed.
    """
    if grid.num_rows * grid.num_cols > 1 or not mission.endswith(named(mission)[-1]):
        return True
    try:
        goal = Goal.of(mission)
    except ValueError:
        return True
    room, pose = Room(), Pose(0, 1)
    room.see(seen, pose)
    for _ in range(MOST_CALLS):
        action, times = goal.next_call(room, pose)
        for _ in range(times):
            _, reward, done, late, _ = grid.step(cast(Any, ACTIONS.index(action)))
            if done or late:
                return float(reward) > 0
        pose = pose.after(action, times)
        room.see(view_text(grid), pose)
    return False


def fits(thing: str, wanted: str) -> bool:
    """Whether the object `thing` matches the description `wanted`.

    For example, the object `red ball` matches `red ball`, `ball` and `red object`.
    """
    return bool(thing) and {*wanted.split()} <= {*thing.split(), "object"}


def named(mission: str) -> list[str]:
    """Return the objects that a mission names.

    For example, "put the red ball next to a box" names `red ball` and `box`.
    """
    return _THING.findall(mission)
