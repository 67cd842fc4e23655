"""Sums of two numbers of two digits: generated problems whose splits share no pair of operands."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations_with_replacement

from agentfly_core.records.trajectory import Problem

NUMBERS = range(10, 100)
OPERATIONS = {"+": ("add", operator.add), "-": ("sub", operator.sub), "*": ("mul", operator.mul)}
Pair = tuple[int, int]


def arithmetic(seed: int, train: int, validation: int, test: int, operators: str = "+-*") -> dict[str, list[Problem]]:
    """So many problems a split, such as `Problem("add-41-58", "What is 41+58?", {"answer": "99"})`.

    41+58 and 58*41 have the same pair of operands, so they are in the same split. Raises ValueError for an unknown
    operator and for more problems than there are.
    """
    if unknown := set(operators) - set(OPERATIONS):
        raise ValueError(f"Got the operators {sorted(unknown)}, expected some of {' '.join(OPERATIONS)}.")
    draw = random.Random(seed)
    sizes = {"train": train, "validation": validation, "test": test}
    shares = _shares(draw, sizes)
    return {
        split: _drawn(draw, list(_problems(shares[split], operators)), size, split) for split, size in sizes.items()
    }


def _shares(draw: random.Random, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    pairs = list(combinations_with_replacement(NUMBERS, 2))
    draw.shuffle(pairs)
    shares: dict[str, list[Pair]] = {}
    start = problems_of = 0
    for split, size in sizes.items():
        problems_of += size
        end = len(pairs) * problems_of // sum(sizes.values())
        shares[split] = pairs[start:end]
        start = end
    return shares


def _problems(pairs: Iterable[Pair], operators: str) -> Iterator[Problem]:
    for a, b in pairs:
        for sign in operators:
            name, work_out = OPERATIONS[sign]
            for x, y in sorted({(a, b), (b, a)}):
                yield Problem(f"{name}-{x}-{y}", f"What is {x}{sign}{y}?", {"answer": str(work_out(x, y))})


def _drawn(draw: random.Random, problems: list[Problem], size: int, split: str) -> list[Problem]:
    if size > len(problems):
        raise ValueError(f"data.{split} asks for {size} problems, {len(problems)} are left for it; ask for fewer.")
    return draw.sample(problems, size)
