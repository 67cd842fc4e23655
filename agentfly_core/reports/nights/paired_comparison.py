"""One number of two policies on the same held-out problems, and the lower bound of its difference.

How the bound was chosen, by exact calculation for 50 to 1,000 problems solved or not, whatever the
share of problems on which the policies differ: the normal bound of the mean difference says
"better" of equal policies in up to 6.5 % of the cases (100 problems, 6 of them different) and "not
worse by the margin" of one that is in up to 19 % (100 problems, margin 0.03), as no problem that
differs is often seen. Bonett and Price (2012, Journal of Educational and Behavioral Statistics 37,
479-488) add one problem for each side and so reach 4.9 % and 8.9 %. One more against the
challenger: 3.8 % and 5.2 %. Its price is small: a gain of 0.05 in success is seen in 96.0 % instead
of 96.6 % of the cases where 1,000 problems differ by 21 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import sqrt
from statistics import NormalDist, fmean
from typing import Any

from agentfly_core.system.formats.json_value import JSON


@dataclass(frozen=True, slots=True)
class Comparison:
    """A challenger against a champion in one number.

        Comparison(
            "goal", champion=0.871, challenger=0.913, difference=0.042, bound=0.021, margin=0.0,
            level=0.05, problems=998, left_out=2,
        )

    `difference` is positive where the challenger is better, and in the unit of `margin`; for tokens
    that is a share of the champion's. `bound` is its one-sided lower bound: the true difference is
    below it with a probability of `level` at most. `left_out` counts problems on which the
    champion has no scored episode.
    """

    name: str
    champion: float
    challenger: float
    difference: float
    bound: float
    margin: float
    level: float
    problems: int
    left_out: int

    @property
    def held(self) -> bool:
        """Whether even the lower bound is above -margin."""
        return self.bound > -self.margin

    def to_json(self) -> dict[str, JSON]:
        """As it is stored, with `held` for readers."""
        return {**asdict(self), "held": self.held}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Comparison:
        """What `to_json` wrote."""
        return cls(**{field.name: stored[field.name] for field in fields(cls)})


def compared(
    name: str,
    champion: Sequence[float],
    challenger: Sequence[float],
    margin: float,
    level: float = 0.05,
    left_out: int = 0,
    sign: float = 1.0,
    unit: float = 1.0,
) -> Comparison:
    """The comparison of two policies' values, problem by problem in the same order.

    `sign` is -1 where less is better, `unit` what differences are divided by.
    """
    differences = [sign * (new - old) / unit for old, new in zip(champion, challenger, strict=True)]
    values = (*champion, *challenger)
    reach = (max(values) - min(values)) / unit
    return Comparison(
        name,
        champion=fmean(champion),
        challenger=fmean(challenger),
        difference=fmean(differences),
        bound=lower_bound(differences, reach, level),
        margin=margin,
        level=level,
        problems=len(differences),
        left_out=left_out,
    )


def lower_bound(differences: Sequence[float], reach: float, level: float) -> float:
    """The one-sided lower bound of the mean difference, at a confidence of 1 - level.

    mean(d) - t s(d) / sqrt(n), where d has three more differences, +reach, -reach and -reach:
    problems that might have been. `reach` is the widest gap between two values that were seen.
    """
    padded = [*differences, reach, -reach, -reach]
    count, mean = len(padded), fmean(padded)
    variance = fmean((difference - mean) ** 2 for difference in padded) * count / (count - 1)
    return mean - t_above(level, count - 1) * sqrt(variance / count)


def t_above(level: float, freedom: int) -> float:
    """What Student's t exceeds with a probability of `level`: `t_above(0.05, 100)` is 1.6602.

    z + (z^3 + z) / 4f + (5z^5 + 16z^3 + 3z) / 96f^2 (Abramowitz and Stegun 1964, 26.7.5).
    """
    z = NormalDist().inv_cdf(1 - level)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
