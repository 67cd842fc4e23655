"""Treasure hunts in worlds of TextWorld; no split has a world or hunts for a thing of another's."""

from __future__ import annotations

import itertools
import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field

from agentfly_core.environments.textworld import World
from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats import hashing

SPLITS = (*["train"] * 4, *["validation"] * 3, *["test"] * 3)
"""How the things that can be hunted for are shared out."""
HELD_OUT = 8
"""How many times as many worlds training plays in as each other split."""
_OBJECTIVE = re.compile(
    r"^Take the (.+), which lies in the (.+)\. You can take only once\.$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Hunt:
    """For a thing that lies in a room, beginning where a way from the world's first room ends:
    `Hunt(World(4711, rooms=8, things=8), ("north",), "old key", "dim sauna")`.
    """

    world: World
    way: tuple[str, ...]
    thing: str
    room: str

    def problem(self) -> Problem:
        """What is asked, and what is seen at first; its game is compiled for that."""
        objective = (
            f"Take the {self.thing}, which lies in the {self.room.title()}. You can take only once."
        )
        name = "-".join(
            [*self.thing.split(), str(self.world.seed), *(step[0] for step in self.way)]
        )
        seen = self.world.seen(self.way)
        facts = {"world": asdict(self.world), "way": list(self.way)}
        return Problem(name, f"{objective}\n{seen}", {**facts, "seen": seen, "thing": self.thing})


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
    """Problems for each split, told with the room that is seen at first:

        Problem("old-key-4711-n", "Take the old key, which lies in the Dim Sauna. You can take "
            "only once.\\n-= Cozy Bar =-\\nYou've entered a bar. A cozy one...",
            {"world": {"seed": 4711, "rooms": 8, "things": 8}, "way": ["north"],
             "seen": "-= Cozy Bar =-\\nYou've entered a bar...", "thing": "old key"})

    `worlds` are played in training, an eighth as many in each other split; they are compiled, which
    takes a second or two of a core each. What is hunted for in one split, such as an old key, is in
    no other's, under any seed, though a new key may be; it is at least `moves` away. Raises
    ValueError where the worlds hold too few hunts.
    """
    draw = random.Random(seed)
    seeds = iter(draw.sample(range(2**31), worlds + 2 * (worlds // HELD_OUT)))
    chosen: dict[str, list[Hunt]] = {}
    for split, size in {"train": train, "validation": validation, "test": test}.items():
        count = worlds if split == "train" else worlds // HELD_OUT
        among = [World(number, rooms, things) for number in itertools.islice(seeds, count)]
        candidates = [
            hunt
            for world in among
            for hunt in hunts(world, moves)
            if SPLITS[hashing.seed("textworld", hunt.thing) % len(SPLITS)] == split
        ]
        if len(candidates) < size:
            raise ValueError(
                f"{count} worlds hold {len(candidates)} hunts for {split}, {size} are asked for: "
                "ask for fewer, or for more worlds, rooms or things, or fewer moves."
            )
        chosen[split] = draw.sample(candidates, size)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return {split: list(pool.map(Hunt.problem, drawn)) for split, drawn in chosen.items()}


def hunts(world: World, moves: int) -> list[Hunt]:
    """Those for each thing, from each room that is at least `moves` moves away from it."""
    place = world.place()
    begun = {start: place.ways(start) for start in place.exits}
    return [
        Hunt(world, tuple(way), thing, room)
        for thing, room in place.lying.items()
        for start, way in begun[place.first].items()
        if len(begun[start][room]) >= moves
    ]


def hunted(prompt: str) -> tuple[str, str]:
    """The thing and its room in a prompt: `("old key", "Dim Sauna")`; raises ValueError."""
    match = _OBJECTIVE.search(prompt)
    if match is None:
        raise ValueError(f"Got {prompt!r:.300}, expected a treasure hunt of datasets.textworld.")
    return match[1], match[2]
