"""Intervals of success over problems and seeds: of runs that differ in their seed only, and of the
difference between two such groups on the same held-out problems.

Of 600 simulated differences each (200 problems that vary by 20 points, seeds by 3), the interval
held the true one in 94.7 % of the cases with 1 and 3 seeds, 95.0 % with 2 each, 95.3 % with 3 and
94.5 % with 5; with 1 seed each in 84.5 %, as that one says nothing of other seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance
from typing import Literal

from agentfly_core.runs import intervals
from agentfly_core.runs.intervals import Interval

Solved = Mapping[str, float]
"""The share of each held-out problem's episodes that reached the goal, by the problem's id."""
Source = Literal["problems", "seeds", "problems and seeds"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval, and what varies in it:
    `Estimate(0.041, (0.02, 0.062), "problems and seeds")`.
    """

    value: float
    interval: Interval
    source: Source


def success(seeds: Sequence[Solved]) -> Estimate:
    """The share of problems solved by runs that differ in the seed only.

    Of several: their mean +- t s / sqrt(k), with s the standard deviation of the k runs' shares and
    t Student's for k - 1. Of one: the Wilson interval over its problems.
    """
    if len(seeds) == 1:
        return Estimate(*intervals.success(seeds[0]), "problems")
    shares = [fmean(solved.values()) for solved in seeds]
    spread = student(len(shares) - 1) * sqrt(variance(shares) / len(shares))
    mean = fmean(shares)
    return Estimate(mean, (max(0.0, mean - spread), min(1.0, mean + spread)), "seeds")


def difference(before: Sequence[Solved], after: Sequence[Solved]) -> Estimate:
    """How much more is solved `after` than `before`, each of them one run or several that differ in
    the seed only, on the same problems.

    Of one run each: the paired interval of `intervals.improvement`, over problems. Else mean +- t
    sqrt(V) with V = P + S - B, the variance of a mean over problems crossed with seeds (Cameron,
    Gelbach and Miller 2011, 10.1198/jbes.2010.07136, eq. 2.11): P of the differences problem by
    problem, S of the seeds' shares, B of what neither explains, which P and S both hold; S and B
    are pooled over the two groups, as one seed alone shows no variation. V is at least the larger
    of P and S. t has the degrees of freedom of Satterthwaite (1946, Biometrics Bulletin 2).
    """
    problems = list(before[0])
    mine = {problem: fmean(solved[problem] for solved in before) for problem in problems}
    its = {problem: fmean(solved[problem] for solved in after) for problem in problems}
    if len(before) == len(after) == 1:
        return Estimate(*intervals.improvement(mine, its), "problems")

    count, free = len(problems), len(before) + len(after) - 2
    by_problem = variance([its[problem] - mine[problem] for problem in problems]) / count
    runs = 1 / len(before) + 1 / len(after)
    groups = ((before, mine), (after, its))
    between = sum(_between(group) for group, _ in groups) / free
    both = sum(_unexplained(group, mean) for group, mean in groups) / (free * (count - 1))
    by_seed, shared = between * runs, both * runs / count

    whole = max(by_problem + by_seed - shared, by_problem, by_seed)
    parts = by_problem**2 / (count - 1) + by_seed**2 / free
    freedom = max(whole**2 / parts, free) if parts else free
    value = fmean(its.values()) - fmean(mine.values())
    spread = student(freedom) * sqrt(whole)
    return Estimate(value, (value - spread, value + spread), "problems and seeds")


def student(freedom: float) -> float:
    """What Student's t exceeds with a probability of 2.5 %: `student(2)` is 4.303."""
    from scipy.special import stdtrit  # loads in a tenth of a second

    return float(stdtrit(freedom, 0.975))


def _between(group: Sequence[Solved]) -> float:
    """The squared distances of the seeds' shares from their mean."""
    shares = [fmean(solved.values()) for solved in group]
    return sum((share - fmean(shares)) ** 2 for share in shares)


def _unexplained(group: Sequence[Solved], mean: Solved) -> float:
    """The squared remainders of what a seed and a problem say each for itself."""
    overall = fmean(mean.values())
    return sum(
        (solved[problem] - fmean(solved.values()) - mean[problem] + overall) ** 2
        for solved in group
        for problem in mean
    )
