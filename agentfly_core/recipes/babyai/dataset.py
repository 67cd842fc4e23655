"""Missions in BabyAI levels. The missions of different splits name different objects."""

import random
from collections.abc import Iterator, Mapping, Sequence

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import shares
from agentfly_core.recipes.babyai.demonstrations import COLORS, PORTABLE, named, solvable
from agentfly_core.recipes.babyai.environment import level, mission, view_text

LEVELS = ("BabyAI-GoToLocal-v0", "BabyAI-PickupDist-v0", "BabyAI-PutNextLocalS6N4-v0")
_MOST_SEEDS = 1000
"""The largest number of random seeds that are tried for one problem."""


@generated
def babyai(
    seed: int, train: int, validation: int, test: int, levels: Sequence[str] = LEVELS
) -> dict[str, list[Problem]]:
    """Make problems for each split. Problem i uses `levels[i % len(levels)]`.

    A prompt contains the mission and the player's first view:

        Problem("PickupDist-4711", "pick up the green key\\nblue ball 2 ahead; wall 3 ahead",
            {"level": "BabyAI-PickupDist-v0", "seed": 4711, "mission": "pick up the green key"})

    Missions of a split name only objects of this split, such as "green key" or "ball". Splits share
    no object. The objects of a split do not depend on the seed. A mission is skipped if the
    recipe's demonstration policy tries the mission and fails; missions that this policy does not
    support are kept. Raises ValueError if `levels` is empty or has an unknown level. Also raises
    ValueError if 1,000 random seeds of a level give no suitable mission.
    """
    if not levels:
        raise ValueError("levels: got none, expected names such as BabyAI-PickupDist-v0.")
    named_in, draw = things(), random.Random(seed)
    splits: dict[str, list[Problem]] = {}
    for split, size in {"train": train, "validation": validation, "test": test}.items():
        problems = [_problems(name, named_in[split], draw) for name in levels]
        splits[split] = [next(problems[number % len(problems)]) for number in range(size)]
    return splits


def things() -> Mapping[str, Sequence[str]]:
    """Return the objects that missions of each split may name, such as `red ball` and `box`.

    Objects have four forms, such as `red ball`, `red door`, `ball` and `red object`. The split
    train gets 4/9 of the objects of each form, validation 2/9 and test 3/9.
    """
    forms = [
        [f"{color} {what}" for color in COLORS for what in PORTABLE],
        [f"{color} door" for color in COLORS],
        [*PORTABLE, "door"],
        [f"{color} object" for color in COLORS],
    ]
    cut = {"train": 4, "validation": 2, "test": 3}
    # not the seed of the problems, because splits must be the same for all seeds
    draw = random.Random(0)
    shared = [shares(draw.sample(form, len(form)), cut) for form in forms]
    return {split: [thing for form in shared for thing in form[split]] for split in cut}


def _problems(name: str, mine: Sequence[str], draw: random.Random) -> Iterator[Problem]:
    grid = level(name)
    taken = set[int]()
    while True:
        for _ in range(_MOST_SEEDS):
            seed = draw.randrange(2**31)
            goal = mission(grid, seed)
            is_mine = seed not in taken and named(goal) and set(named(goal)) <= set(mine)
            # `solvable` changes the grid, so the view is read first
            if is_mine and solvable(grid, goal, seen := view_text(grid)):
                break
        else:
            raise ValueError(
                f"{name}: {_MOST_SEEDS} missions were drawn, such as {goal!r}. Each is unsolvable "
                f"or names an object other than {', '.join(mine)}. Choose other levels."
            )
        taken.add(seed)
        kind = name.removeprefix("BabyAI-").removesuffix("-v0")
        facts = {"level": name, "seed": seed, "mission": goal, "kind": kind}
        yield Problem(f"{kind}-{seed}", f"{goal}\n{seen}", facts)
