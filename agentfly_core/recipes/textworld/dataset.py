"""Treasure hunts in TextWorld. Splits share no world and no object."""

import itertools
import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import split_of
from agentfly_core.recipes.textworld.environment import World

SPLITS = (*["train"] * 4, *["validation"] * 3, *["test"] * 3)
"""The split of an object is `SPLITS[number % 10]`, with a hash of the object's name as `number`."""
HELD_OUT = 8
"""The ratio of the number of training worlds to the number of validation (or test) worlds."""
_OBJECTIVE = re.compile(
    r"^Take the (.+), which lies in the (.+)\. You can take only once\.$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Hunt:
    """A treasure hunt: the player must take the object `thing`, which is in the room `room`.

    `way` is the moves from the first room of the world to the room in which the hunt starts. An
    example is `Hunt(World(4711, rooms=8, things=8), ("north",), "old key", "dim sauna")`.
    """

    world: World
    way: tuple[str, ...]
    thing: str
    room: str

    def problem(self) -> Problem:
        """Make the problem of this hunt.

        The game is compiled, because the prompt describes the room in which the hunt starts.
        """
        room, seen = self.room.title(), self.world.seen(self.way)
        prompt = f"Take the {self.thing}, which lies in the {room}. You can take only once.\n{seen}"
        steps = (step[0] for step in self.way)
        name = "-".join([*self.thing.split(), str(self.world.seed), *steps])
        facts = {"world": asdict(self.world), "way": list(self.way)}
        return Problem(name, prompt, {**facts, "seen": seen, "thing": self.thing})


@generated
def textworld(
    seed: int,
    train: int,
    validation: int,
    test: int,
    worlds: Annotated[int, Field(ge=HELD_OUT)] = 256,
    rooms: Annotated[int, Field(ge=2, le=20)] = 8,
    things: Annotated[int, Field(ge=1, le=50)] = 8,
    moves: Annotated[int, Field(ge=1, le=19)] = 1,
) -> dict[str, list[Problem]]:
    """Make problems for each split. Each problem is a hunt for an object. A prompt has the
    objective, and describes the room in which the hunt starts:

        Problem("old-key-4711-n", "Take the old key, which lies in the Dim Sauna. You can take "
            "only once.\\n-= Cozy Bar =-\\nYou've entered a bar. A cozy one...",
            {"world": {"seed": 4711, "rooms": 8, "things": 8}, "way": ["north"],
             "seen": "-= Cozy Bar =-\\nYou've entered a bar...", "thing": "old key"})

    `worlds` is the number of worlds for training. With 256 worlds for training, there are 32 (an
    eighth) for validation and 32 for the test. Compiling the game of a world takes one or two CPU
    seconds. The shortest path from the starting room to the object has at least `moves` moves.
    All hunts for the same object, such as "old key", are in the same split. The split of an object
    does not depend on the seed. Hunts for an object with a different adjective, such as "new key",
    may be in another split. Raises ValueError if more problems are requested than the worlds have
    hunts.
    """
    draw = random.Random(seed)
    # the seeds are distinct, because splits must not share a world
    seeds = iter(draw.sample(range(2**31), worlds + 2 * (worlds // HELD_OUT)))
    chosen: dict[str, list[Hunt]] = {}
    for split, size in {"train": train, "validation": validation, "test": test}.items():
        count = worlds if split == "train" else worlds // HELD_OUT
        among = [World(number, rooms, things) for number in itertools.islice(seeds, count)]
        candidates = [
            hunt
            for world in among
            for hunt in hunts(world, moves)
            if split_of("textworld", hunt.thing, SPLITS) == split
        ]
        if len(candidates) < size:
            raise ValueError(
                f"data.{split} is {size}, but {count} worlds have {len(candidates)} hunts for this "
                f"split. Lower data.{split} or `moves`, or raise `worlds`, `rooms` or `things`."
            )
        chosen[split] = draw.sample(candidates, size)
    # threads suffice, because the compiler is a separate program
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return {split: list(pool.map(Hunt.problem, drawn)) for split, drawn in chosen.items()}


def hunts(world: World, moves: int) -> list[Hunt]:
    """Return a treasure hunt for each starting room and object in a world.

    Pairs whose shortest path has fewer than `moves` moves are left out.
    """
    place = world.place()
    ways = {start: place.ways(start) for start in place.exits}
    return [
        Hunt(world, tuple(way), thing, room)
        for thing, room in place.lying.items()
        for start, way in ways[place.first].items()
        if len(ways[start][room]) >= moves
    ]


def hunted(prompt: str) -> tuple[str, str]:
    """Return the object and its room in a prompt: `("old key", "Dim Sauna")`.

    Raises ValueError for a prompt that is not a treasure hunt.
    """
    match = _OBJECTIVE.search(prompt)
    if match is None:
        raise ValueError(f"Got the prompt {prompt!r:.300}, expected a prompt of recipes.textworld.")
    return match[1], match[2]
