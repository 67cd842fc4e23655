"""How far two rewards agree on the same episodes."""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations
from math import sqrt


@dataclass(frozen=True, slots=True)
class Agreement:
    """Pairs of episodes of the same group, and whether two rewards order them alike.

    `Agreement(alike=2, turned=1, by_old=3, by_new=4, groups=2, changed=1, reversed=1)`: two pairs
    are ordered alike and one the other way round, the old reward tells 3 pairs apart and the new
    one 4; in one of the two groups the order changed, and in one some pair was turned round.
    """

    alike: int
    turned: int
    by_old: int
    by_new: int
    groups: int
    changed: int
    reversed: int

    @property
    def tau(self) -> float | None:
        """Kendall's tau-b over pairs within groups, from -1 to 1; None where one of the rewards
        tells no pair apart.

        (alike - turned) / sqrt(by_old * by_new) (Kendall 1945, Biometrika 33, 239-251, with pairs
        of other groups left out: advantages compare the episodes of a group). Pairs that are tied
        count neither as alike nor as turned, so that it does not call two rewards of 0 and 1 alike
        for their ties.
        """
        untied = self.by_old * self.by_new
        return (self.alike - self.turned) / sqrt(untied) if untied else None

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(*map(operator.add, astuple(self), astuple(other)))


NOTHING = Agreement(0, 0, 0, 0, 0, 0, 0)


def agreement(groups: Iterable[Sequence[tuple[float, float]]]) -> Agreement:
    """The agreement within groups of episodes, each an old and a new reward: `agreement([[(0.0,
    0.2), (1.0, 0.9)], ...])`. A group's order changed where a pair is turned round, or is tied by
    one reward only.
    """
    total = NOTHING
    for group in groups:
        orders = [
            (_sign(one[0] - other[0]), _sign(one[1] - other[1]))
            for one, other in combinations(group, 2)
        ]
        products = [old * new for old, new in orders]
        total += Agreement(
            alike=products.count(1),
            turned=products.count(-1),
            by_old=sum(old != 0 for old, _ in orders),
            by_new=sum(new != 0 for _, new in orders),
            groups=1,
            changed=int(any(old != new for old, new in orders)),
            reversed=int(-1 in products),
        )
    return total


def ranks(values: Sequence[float]) -> list[float]:
    """The share of values that each one exceeds, equal ones counted half: `ranks([0, 1, 1, 5])` is
    `[0.125, 0.5, 0.5, 0.875]`.
    """
    ordered = sorted(values)
    return [
        (bisect_left(ordered, value) + bisect_right(ordered, value)) / (2 * len(ordered))
        for value in values
    ]


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)
