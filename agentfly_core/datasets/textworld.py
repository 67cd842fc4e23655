"""Treasure hunts of TextWorld, for things of which no split knows another's."""

from __future__ import annotations

import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from agentfly_core.environments.textworld import Hunt, NoQuest
from agentfly_core.formats import hashing
from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem

SPLITS = (*["train"] * 6, *["validation"] * 2, *["test"] * 2)
"""How the things that can be hunted for are shared out."""
_OBJECTIVE = re.compile(r"\bthe ([^.!?]+) from the floor of the ([^.!?]+)\.")


@generated
def textworld(
    seed: int,
    train: int,
    validation: int,
    test: int,
    rooms: Annotated[int, Field(ge=2, le=20)] = 6,
    length: Annotated[int, Field(ge=1, le=20)] = 4,
) -> dict[str, list[Problem]]:
    """Problems for each split, told with the room that is seen at first:

        Problem("old-key-4711", "Your objective is to retrieve the old key from the floor of the "
            "sauna.\\n-= Bar =-\\nYou've entered a bar...",
            {"game": {"seed": 4711, "rooms": 6, "length": 4}, "objective": "Your objective is ..."})

    What is hunted for in one split, such as a latchkey, is in no other's, under any seed. Each game
    is compiled, which takes two seconds of a core. Raises ValueError for rooms in which no such way
    is found.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    chosen: dict[str, list[tuple[Hunt, str]]] = {split: [] for split in sizes}
    for number in random.Random(seed).sample(range(2**31), 20 + 20 * sum(sizes.values())):
        if all(len(chosen[split]) == size for split, size in sizes.items()):
            break
        hunt = Hunt(number, rooms, length)
        with suppress(NoQuest):
            objective = hunt.generated().objective
            split = SPLITS[hashing.seed("textworld", hunted(objective)[0]) % len(SPLITS)]
            chosen[split] += [(hunt, objective)][: sizes[split] - len(chosen[split])]
    else:
        raise ValueError(
            f"Among {rooms} rooms hunts of {length} steps are not found often enough: ask for more "
            "rooms, or for fewer steps."
        )
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return {split: list(pool.map(_problem, found)) for split, found in chosen.items()}


def hunted(prompt: str) -> tuple[str, str]:
    """The thing that is hunted for and the room where it lies: `("old key", "sauna")`; raises
    ValueError for a prompt that says no such thing.
    """
    found = _OBJECTIVE.search(prompt)
    if found is None:
        raise ValueError(f"Got {prompt!r:.300}, expected a treasure hunt of datasets.textworld.")
    return found[1], found[2]


def _problem(found: tuple[Hunt, str]) -> Problem:
    hunt, objective = found
    facts = {"game": asdict(hunt), "objective": objective}
    name = f"{hunted(objective)[0].replace(' ', '-')}-{hunt.seed}"
    return Problem(name, f"{objective}\n{hunt.beginning()}", facts)
