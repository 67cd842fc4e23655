"""A test of paired results."""

from collections.abc import Sequence
from math import comb


def sign_test(one: Sequence[float], other: Sequence[float]) -> float:
    """The exact two-sided p of the sign test without ties; of successes it is McNemar's test."""
    won = sum(a > b for a, b in zip(one, other, strict=True))
    lost = sum(a < b for a, b in zip(one, other, strict=True))
    tail = sum(comb(won + lost, k) for k in range(min(won, lost) + 1))
    return min(1.0, 2 * tail / 2 ** (won + lost))
