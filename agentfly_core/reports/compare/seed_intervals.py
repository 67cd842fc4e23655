"""Intervals of success over problems and seeds, and of the difference between two groups of seeds.

Coverage of the true difference in 600 simulations each (problems vary by 20 points, seeds by 3):
94.8 % with 1 and 3 seeds, 95.3 % with 2 each, 95.5 % with 3, 94.8 % with 5, and 85.0 % with 1 each,
because one seed does not show the variation of seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance
from typing import Literal

from agentfly_core.records import intervals
from agentfly_core.records.intervals import Interval, student

Solved = Mapping[str, float]
"""Solved share of each problem's episodes, by problem id."""
Source = Literal["problems", "problems and seeds"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval: `Estimate(0.041, (0.02, 0.062), "problems and seeds")`."""

    value: float
    interval: Interval
    source: Source


def success(seeds: Sequence[Solved]) -> Estimate:
    """Solved share of runs that differ in the seed only.

    One run: the Wilson interval over problems. k runs: mean +- t s / sqrt(k), with the standard
    deviation s of their shares and Student's t for k - 1, at least as wide as the Wilson interval
    of the mean.
    """
    mean, (low, high) = intervals.success(_mean(seeds))
    if len(seeds) == 1:
        return Estimate(mean, (low, high), "problems")
    shares = [fmean(solved.values()) for solved in seeds]
    spread = student(len(shares) - 1) * sqrt(variance(shares) / len(shares))
    widest = max(0.0, min(low, mean - spread)), min(1.0, max(high, mean + spread))
    return Estimate(mean, widest, "problems and seeds")


def difference(before: Sequence[Solved], after: Sequence[Solved]) -> Estimate:
    """Gain of `after` over `before`, each with one or several seeds, on the same problems.

    One run each: mean +- t sqrt(P), paired by problem (arXiv 2411.00640, section 4.2). P is the
    variance of the mean of the n differences and two more, 1 and -1, which keep intervals of few
    differing problems wide (Bonett and Price 2012, see records/intervals.py).

    Else mean +- t sqrt(V) with V = P + S - B for problems crossed with seeds (Cameron, Gelbach and
    Miller 2011, 10.1198/jbes.2010.07136): S of the seeds' shares, B of the rest, which P and S both
    contain. S and B are pooled over the groups. V is at least P and S, t has Satterthwaite's
    degrees of freedom (1946, Biometrics Bulletin 2).
    """
    mine, its = _mean(before), _mean(after)
    count, free = len(mine), len(before) + len(after) - 2
    differences = [its[problem] - mine[problem] for problem in mine]
    value = fmean(differences)
    by_problem = variance([*differences, 1.0, -1.0]) / (count + 2)
    if free == 0:
        spread = student(count + 1) * sqrt(by_problem)
        return Estimate(value, _around(value, spread), "problems")

    by_seed, shared = _by_seed((before, mine), (after, its))
    whole = max(by_problem + by_seed - shared, by_problem, by_seed)
    parts = by_problem**2 / (count + 1) + by_seed**2 / free
    spread = student(max(whole**2 / parts, free)) * sqrt(whole)
    return Estimate(value, _around(value, spread), "problems and seeds")


def _around(difference: float, spread: float) -> Interval:
    """The interval of a difference, clipped to -1 and 1."""
    return max(-1.0, difference - spread), min(1.0, difference + spread)


def _by_seed(*groups: tuple[Sequence[Solved], Solved]) -> tuple[float, float]:
    """The variances S and B of `difference` for groups with their means by problem."""
    runs = sum(1 / len(seeds) for seeds, _ in groups)
    count, free = len(groups[0][1]), sum(len(seeds) - 1 for seeds, _ in groups)
    between = remainders = 0.0
    for seeds, mean in groups:
        overall, shares = fmean(mean.values()), [fmean(solved.values()) for solved in seeds]
        between += sum((share - fmean(shares)) ** 2 for share in shares)
        # without the effects of seed and problem
        remainders += sum(
            (solved[problem] - share - mean[problem] + overall) ** 2
            for solved, share in zip(seeds, shares, strict=True)
            for problem in mean
        )
    both = remainders / (free * (count - 1))
    return between / free * runs, both * runs / count


def _mean(seeds: Sequence[Solved]) -> dict[str, float]:
    """The mean over seeds of each problem's share."""
    return {problem: fmean(solved[problem] for solved in seeds) for problem in seeds[0]}
