"""Tests of paired successes."""

from collections.abc import Sequence
from math import comb


def mcnemar(one: Sequence[bool], other: Sequence[bool]) -> float:
    """The exact two-sided p of McNemar's test."""
    won = sum(a > b for a, b in zip(one, other, strict=True))
    lost = sum(a < b for a, b in zip(one, other, strict=True))
    tail = sum(comb(won + lost, k) for k in range(min(won, lost) + 1))
    return min(1.0, 2 * tail / 2 ** (won + lost))
