"""A policy that carries out missions in one room: what it does follows from what it reads."""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product, takewhile

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.babyai import named
from agentfly_core.datasets.demonstrations import Script
from agentfly_core.datasets.mistakes import called, mistake, observed
from agentfly_core.environments.babyai import ACTIONS
from agentfly_core.records.trajectory import Problem
from agentfly_core.templates.chatml import call_text
from agentfly_core.tools.babyai import DONE, OVER

MISTAKES = ("other thing", "wander")
Cell = tuple[int, int]
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1))
_AHEAD, _ASIDE = range(7), range(-3, 4)
"""The cells of a view, seen from its lower middle."""
_PLACE = re.compile(r"(\d+) (ahead|left|right)")
_CARRIED = "you carry a "


@dataclass(frozen=True, slots=True)
class Pose:
    """Where one stands, and the direction in which one looks: `Pose((0, 0), (1, 0))` at first."""

    cell: Cell
    looks: Cell

    def at(self, ahead: int, right: int) -> Cell:
        """The cell so far ahead and to the right."""
        (x, y), (dx, dy) = self.cell, self.looks
        return x + ahead * dx - right * dy, y + ahead * dy + right * dx

    def after(self, action: str, times: int = 1) -> Pose:
        """The pose after an action that nothing hinders."""
        pose = self
        for _ in range(times):
            dx, dy = pose.looks
            moved = {
                "turn left": Pose(pose.cell, (dy, -dx)),
                "turn right": Pose(pose.cell, (-dy, dx)),
                "go forward": Pose(pose.at(1, 0), pose.looks),
            }
            pose = moved.get(action, pose)
        return pose


@dataclass(slots=True)
class Room:
    """What was seen of a room: its things by cell, cells without one, walls, and what one carries:

    Room({(2, -1): "red ball"}, {(0, 0), (1, 0)}, {(3, 0)}, "grey box")
    """

    things: dict[Cell, str] = field(default_factory=dict)
    free: set[Cell] = field(default_factory=set)
    walls: set[Cell] = field(default_factory=set)
    carried: str = ""

    def see(self, told: str, pose: Pose) -> None:
        """Learn what is told of the view from a pose, in the words of environments.babyai."""
        listed, *others = told.split("; ")
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
        """Whether one was seen to be able to stand there."""
        return cell in self.free and cell not in self.things

    def is_unknown(self, cell: Cell) -> bool:
        """Whether nothing was seen of it."""
        return not {cell} & (self.free | self.walls)

    def way(self, start: Pose, is_goal: Callable[[Cell], bool]) -> list[str] | None:
        """The fewest actions to where the cell before one is the goal's; None without a way."""
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
    """`Goal("put", "red ball", "blue key")`; the second thing is empty but for "put"."""

    verb: str
    thing: str
    beside: str = ""

    @classmethod
    def of(cls, mission: str) -> Goal:
        """What a mission asks for; raises ValueError for one of another kind."""
        for verb, number in {"go to": 1, "pick up": 1, "put": 2}.items():
            if mission.startswith(f"{verb} ") and len(things := named(mission)) == number:
                return cls(verb, *things)
        raise ValueError(f"Got the mission {mission!r}, expected to go, pick up, or put next to.")

    def next_actions(self, room: Room, pose: Pose) -> list[str]:
        """What leads to it from here; where that is not known, to a cell that was not seen."""
        if self.verb == "put" and room.carried:
            way, last = room.way(pose, partial(self._is_beside, room)), "drop"
        else:
            way = room.way(pose, lambda cell: fits(room.things.get(cell, ""), self.thing))
            last = "go forward" if self.verb == "go to" else "pick up"
        if way is None:
            return room.way(pose, room.is_unknown) or ["turn right"]
        return [*way, last]

    def _is_beside(self, room: Room, cell: Cell) -> bool:
        around = [(cell[0] + dx, cell[1] + dy) for dx, dy in _SIDES]
        return room.is_free(cell) and any(
            fits(room.things.get(next_to, ""), self.beside) for next_to in around
        )


def babyai(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """Turn until the thing is seen, go there, and do with it what the mission says; it understands
    missions to go to a thing, to pick one up, and to put one next to another, in one room.

    A share `spoilt` of the episodes takes another thing, or wanders about.
    """

    async def policy(conversation: Conversation) -> str:
        asked, first = conversation.problem.prompt.splitlines()
        told = [first, *observed(conversation)]
        if told[-1] in (DONE, OVER):
            return told[-1]
        goal = Goal.of(asked)
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        if wrong == "wander":
            draw = random.Random(conversation.seed)
            return call_text("act", action=draw.choice(ACTIONS[:3]), times=draw.randint(1, 3))
        room, pose = Room(), Pose((0, 0), (1, 0))
        room.see(first, pose)
        if wrong == "other thing":
            others = [thing for thing in room.things.values() if not fits(thing, goal.thing)]
            unseen = "grey box" if fits("red key", goal.thing) else "red key"
            goal = replace(goal, thing=others[0] if others else unseen)
        for call, view in zip(called(conversation), told[1:], strict=True):
            pose = pose.after(str(call.arguments["action"]), int(str(call.arguments["times"])))
            room.see(view, pose)
        action, *others = goal.next_actions(room, pose)
        return call_text("act", action=action, times=1 + len([*takewhile(action.__eq__, others)]))

    return policy


def fits(thing: str, wanted: str) -> bool:
    """Whether a thing is one of those: a red ball is a `red ball`, a `ball` and a `red object`."""
    return bool(thing) and {*wanted.split()} <= {*thing.split(), "object"}
