"""Problems about sums of powers, for a model that can write a program."""

import random
from itertools import combinations

from agentfly_core.datasets.splitting import sampled
from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem

NUMBERS = range(10, 100)
EXPONENTS = (1, 2, 3)


@generated
def powers(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem(
            "pow-2-12-15",
            "Add up i**2 for i from 12, below 15.",
            {"answer": "509", "bounds": [2, 12, 15]},
        )

    Each pair of bounds, here 12 and 15, is in only one split. Raises ValueError if there are not
    enough different problems.
    """
    sizes = {"train": train, "validation": validation, "test": test}

    def problems(bounds: tuple[int, int]) -> list[Problem]:
        return [problem(exponent, *bounds) for exponent in EXPONENTS]

    return sampled(random.Random(seed), combinations(NUMBERS, 2), problems, sizes)


def problem(exponent: int, first: int, bound: int) -> Problem:
    total = sum(i**exponent for i in range(first, bound))
    return Problem(
        f"pow-{exponent}-{first}-{bound}",
        f"Add up i**{exponent} for i from {first}, below {bound}.",
        {"answer": str(total), "bounds": [exponent, first, bound]},
    )
