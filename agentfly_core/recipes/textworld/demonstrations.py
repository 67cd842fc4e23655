"""Demonstrations for treasure hunts of TextWorld, computed only from the texts of the game."""

import random
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, called, mistake, observed
from agentfly_core.recipes.textworld.dataset import hunted

BACK = {"north": "south", "south": "north", "east": "west", "west": "east"}
MISTAKES = ("wander", "give up")
_ROOM = re.compile(r"-= (.+?) =-\n([\s\S]*)")
_LIES = re.compile(r"There is (.+?) on the floor")


@dataclass(slots=True)
class Map:
    """The visited rooms of a game.

    `rooms` has the exits of each visited room by direction:
    `{"Bar": {"north": "Sauna", "east": ""}}`. In this example, the player has used the exit in the
    north of the bar. It is unknown to which room the exit in the east leads. `here` is the current
    room.
    """

    rooms: dict[str, dict[str, str]] = field(default_factory=dict)
    here: str = ""

    def see(self, view: str, went: str = "") -> None:
        """Add the room that a text of the game describes.

        `went` is the direction in which the player moved to this room, or "" if the player stayed.
        """
        if not (match := _ROOM.search(view)):
            return
        before, self.here = self.here, match[1]
        exits = self.rooms.setdefault(self.here, {})
        for direction in BACK:
            if re.search(rf"\b{direction}\b", match[2]):
                exits.setdefault(direction, "")
        if went:
            self.rooms[before][went], exits[BACK[went]] = self.here, before

    def way(self) -> str:
        """Return the direction of the first move to the nearest room with an unused exit.

        If the current room has an unused exit, return the direction of this exit. If all exits are
        used, return "".
        """
        first = {self.here: ""}
        waiting = deque([self.here])
        while waiting:
            room = waiting.popleft()
            for direction, leads in self.rooms[room].items():
                step = first[room] or direction
                if not leads:
                    return step
                if leads not in first:
                    first[leads] = step
                    waiting.append(leads)
        return ""


def textworld(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that explores the game until it reaches the room of the wanted object.

    In this room, the policy takes the object. The prompt names the object and the object's room.
    Each reply with a command names the current room, the object and the object's room. In a share
    `spoilt` of the episodes, the policy makes a mistake: it moves at random, or gives up before
    taking the object.
    """

    async def policy(conversation: Conversation) -> str:
        thing, room = hunted(conversation.problem.prompt)
        if took(conversation):
            return "Done."
        seen = Map()
        seen.see(conversation.problem.prompt)
        for call, view in zip(called(conversation), observed(conversation), strict=True):
            verb, _, direction = str(call.arguments["command"]).partition(" ")
            seen.see(view, direction if verb == "go" else "")
        read = [conversation.problem.prompt, *observed(conversation)][-1]
        name = short(thing, read)
        thought = f"I am in the {seen.here}, and the {name} is in the {room}.\n"
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        if wrong == "wander":
            exits = sorted(seen.rooms[seen.here])
            step = random.Random(conversation.seed).choice(exits)
            return thought + call_text("do", command=f"go {step}")
        if seen.here.lower() == room.lower():
            return "Done." if wrong else thought + call_text("do", command=f"take {name}")
        return thought + call_text("do", command=f"go {seen.way()}") if seen.way() else "Done."

    return policy


def lying(view: str) -> list[str]:
    """Return the objects on the floor in a text of the game: `["old key", "iron bar"]`."""
    items = (one for listing in _LIES.findall(view) for one in re.split(", | and ", listing))
    return [one.partition(" ")[2] for one in items]


def short(thing: str, view: str) -> str:
    """Return the last word of an object's name, such as "key" for "old key".

    If the last word also occurs in the name of another object in the view, return the whole name.
    """
    last = thing.split()[-1]
    return thing if sum(last in one.split() for one in lying(view)) > 1 else last


def took(conversation: Conversation) -> bool:
    return any(str(call.arguments["command"]).startswith("take") for call in called(conversation))
