"""Intervals around success rates, and around two policies' difference on the same problems."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

Z95 = 1.959963984540054
Interval = tuple[float, float]


def wilson(successes: float, trials: int) -> Interval:
    """The 95 % score interval of a success rate: `wilson(8, 10)` is (0.490, 0.943).

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with p = successes / n, z = 1.96
    (Wilson 1927, JASA 22). `trials` counts problems: with several episodes a problem give the sum
    over problems of the share solved, which is conservative. Raises ValueError unless 0 <=
    successes <= trials and trials >= 1.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(
            f"Got {successes} successes of {trials} trials, expected 0 <= successes <= trials and "
            "a trial."
        )
    share, z2 = successes / trials, Z95 * Z95
    middle = share + z2 / (2 * trials)
    spread = Z95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    scale = 1 + z2 / trials
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def success(solved: Mapping[str, float]) -> tuple[float, Interval]:
    """The share of problems solved and its 95 % interval; `solved` is the share of each problem's
    episodes, by id.

    Raises ValueError when there is no problem.
    """
    total = math.fsum(solved.values())
    interval = wilson(total, len(solved))
    return total / len(solved), interval


def mean(values: Mapping[str, float]) -> tuple[float, Interval | None] | None:
    """The mean over problems and its 95 % interval, mean +- z s / sqrt(n) (arXiv 2411.00640,
    section 2.1); no interval for a single problem, and None for none.
    """
    if not values:
        return None
    middle = statistics.fmean(values.values())
    if len(values) == 1:
        return middle, None
    spread = Z95 * statistics.stdev(values.values()) / math.sqrt(len(values))
    return middle, (middle - spread, middle + spread)


def improvement(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[float, Interval]:
    """The mean of after - before over the same problems, and its 95 % interval.

    mean(d) +- z s(d) / sqrt(n) with d the differences by problem and s their unbiased standard
    deviation: the paired analysis of "Adding Error Bars to Evals" (arXiv 2411.00640, section 4.2).
    Raises ValueError when the problems differ or are fewer than two.
    """
    if len(before) < 2 or before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())[:3]
        raise ValueError(
            f"Got {len(before)} problems before and {len(after)} after (in one only: {odd}), "
            "expected the same two or more: evaluate both policies on the same split."
        )
    differences = [after[problem] - before[problem] for problem in before]
    middle = statistics.fmean(differences)
    spread = Z95 * statistics.stdev(differences) / math.sqrt(len(differences))
    return middle, (middle - spread, middle + spread)
