"""Arithmetic with two two-digit numbers. Each pair of operands is in only one split."""

import operator
import random
from collections.abc import Iterator
from itertools import combinations_with_replacement, product

from agentfly_core.datasets.splitting import sampled
from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem

NUMBERS = range(10, 100)
OPERATIONS = {"+": ("add", operator.add), "-": ("sub", operator.sub), "*": ("mul", operator.mul)}


@generated
def arithmetic(
    seed: int, train: int, validation: int, test: int, operators: str = "+-*"
) -> dict[str, list[Problem]]:
    """Make problems for each split: `Problem("add-41-58", "What is 41+58?", {"answer": "99"})`.

    Problems with the same two numbers, such as 41+58 and 58*41, are in the same split. Raises
    ValueError if an operator is unknown, or if there are not enough different problems.
    """
    if unknown := set(operators) - set(OPERATIONS):
        raise ValueError(
            f"Got the operators {sorted(unknown)}, expected some of {' '.join(OPERATIONS)}."
        )
    sizes = {"train": train, "validation": validation, "test": test}

    def problems(pair: tuple[int, int]) -> Iterator[Problem]:
        # a set, because with equal numbers the reversed pair is the same problem
        for sign, (x, y) in product(operators, sorted({pair, pair[::-1]})):
            name, work_out = OPERATIONS[sign]
            facts = {"answer": str(work_out(x, y))}
            yield Problem(f"{name}-{x}-{y}", f"What is {x}{sign}{y}?", facts)

    pairs = combinations_with_replacement(NUMBERS, 2)
    return sampled(random.Random(seed), pairs, problems, sizes)
