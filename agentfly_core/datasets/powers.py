"""Sums of powers for a model that can write a program."""

from __future__ import annotations

import random
from itertools import combinations

from agentfly_core.datasets.splitting import sample, shares
from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem

NUMBERS = range(10, 100)
EXPONENTS = (1, 2, 3)


@generated
def powers(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Problems for each split, such as

        Problem(
            "pow-2-12-15",
            "Add up i**2 for i from 12, below 15.",
            {"answer": "509", "bounds": [2, 12, 15]},
        )

    No two splits share the bounds of a sum. Raises ValueError for more problems than there are.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    draw = random.Random(seed)
    bounds = list(combinations(NUMBERS, 2))
    draw.shuffle(bounds)
    splits = {}
    for split, share in shares(bounds, sizes).items():
        problems = [problem(exponent, *pair) for pair in share for exponent in EXPONENTS]
        splits[split] = sample(draw, problems, sizes[split], split)
    return splits


def problem(exponent: int, first: int, bound: int) -> Problem:
    """The sum of i**exponent for i from `first`, below `bound`."""
    total = sum(i**exponent for i in range(first, bound))
    return Problem(
        f"pow-{exponent}-{first}-{bound}",
        f"Add up i**{exponent} for i from {first}, below {bound}.",
        {"answer": str(total), "bounds": [exponent, first, bound]},
    )
