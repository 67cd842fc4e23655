"""Rates and means over problems, with their confidence intervals."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from agentfly_core.system.formats.json_value import JSON

Z95 = 1.959963984540054
FEWEST = 8
"""The smallest number of problems for which `mean` computes an interval. With fewer problems,
the interval would be too narrow: for 5 problems, it would contain the true mean in only 85 % of the
cases.
"""
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate with its 95 % interval: `Rate(0.91, (0.89, 0.93), 1000)`.

    `share` is the rate, and `problems` is the number of problems. The rate is a mean over problems.
    The value of each problem is the share of its episodes that are solved.
    """

    share: float
    interval: Interval
    problems: int

    @classmethod
    def of(cls, by_problem: Mapping[str, float]) -> Self:
        """Compute the rate. `by_problem` has the share of solved episodes for each problem.

        Raises ValueError if `by_problem` is empty.
        """
        return cls(*success(by_problem), len(by_problem))

    def to_json(self) -> dict[str, JSON]:
        """Return the rate as a JSON object: `{"problems": 1000, "success": 0.91, "interval_low":
        0.89, "interval_high": 0.93}`.
        """
        low, high = self.interval
        return {
            "problems": self.problems,
            "success": self.share,
            "interval_low": low,
            "interval_high": high,
        }


def wilson(successes: float, trials: int) -> Interval:
    """Return the 95 % score interval of a success rate: `wilson(8, 10)` is (0.490, 0.943).

    The interval is (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with p = successes / n
    and z = 1.96 (Wilson 1927, JASA 22). This interval contains p and is within [0, 1].

    `trials` is the number of problems n. With one episode per problem, `successes` is the number of
    solved problems. With several episodes, `successes` is the sum of each problem's share of solved
    episodes, and the interval is conservative (too wide). Raises ValueError unless 0 <= successes
    <= trials and trials >= 1.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(
            f"Got successes={successes} and trials={trials}, expected 0 <= successes <= trials and "
            "trials >= 1."
        )
    share, z2 = successes / trials, Z95 * Z95
    middle = share + z2 / (2 * trials)
    spread = Z95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    scale = 1 + z2 / trials
    low, high = (middle - spread) / scale, (middle + spread) / scale
    # at the rates 0 and 1, rounding may move an end beyond the rate
    return min(share, max(0.0, low)), max(share, min(1.0, high))


def success(solved: Mapping[str, float]) -> tuple[float, Interval]:
    """Return the mean of the values in `solved`, and the mean's 95 % interval.

    `solved` has the share of solved episodes for each problem. Raises ValueError if `solved` is
    empty.
    """
    total = math.fsum(solved.values())
    interval = wilson(total, len(solved))
    return total / len(solved), interval


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over problems and its 95 % interval: `Mean(0.875, (0.498, 1.0), 8)`.

    The interval is None if there are fewer than 8 problems, or if all values are equal. See `mean`
    for the method.
    """

    value: float
    interval: Interval | None
    problems: int


def mean(values: Mapping[str, float]) -> Mean | None:
    """Compute the mean of `values` (one number per problem) with its 95 % interval.

    Returns None if `values` is empty.

    The interval is computed from n + 2 values: the n values, a copy of the smallest value and a
    copy of the largest value. m and s are the mean and the standard deviation of the n + 2 values.
    The interval is m +- t s / sqrt(n + 2), with Student's t for n + 1 degrees of freedom. The
    interval is clipped to the range of the values. If each value is 0 or 1, and n is from 8 to 128,
    the interval contains the true mean in at least 93.5 % of the cases. Without the two added
    values, it would contain the true mean in 86 % of the cases.
    """
    if not values:
        return None
    seen = [*values.values()]
    middle, count = statistics.fmean(seen), len(seen)
    least, most = min(seen), max(seen)
    if count < FEWEST or least == most:
        return Mean(middle, None, count)
    padded = [*seen, least, most]
    spread = student(count + 1) * statistics.stdev(padded) / math.sqrt(count + 2)
    center = statistics.fmean(padded)
    return Mean(middle, (max(least, center - spread), min(most, center + spread)), count)


def student(freedom: float, above: float = 0.025) -> float:
    """Return a quantile of Student's t distribution: `student(2)` is 4.303.

    `freedom` is the number of degrees of freedom. `above` is the probability of a value above the
    quantile.
    """
    from scipy.special import stdtrit  # imported here, because it takes a tenth of a second

    return float(stdtrit(freedom, 1 - above))


def lower_bound(differences: Sequence[float], reach: float, level: float) -> float:
    """Compute a one-sided lower bound of the mean of paired differences, with confidence 1 - level.

    The bound is mean(d) - t s(d) / sqrt(n). The n values of d are the differences and three added
    values: +reach, -reach and -reach. `reach` is the largest possible difference.

    The error rate is the probability of a bound above the true mean. The added values keep this
    rate near `level`. The list shows the largest error rates for 50 to 1,000 problems at a level of
    5 %. The first rate in each line is for two policies with equal success rates. The second rate
    is for a new policy that is worse by the largest loss that the settings `promotion` allow.

    - without added values: 6.5 % and 19 %
    - with +reach and -reach (Bonett and Price 2012, Journal of Educational and Behavioral
      Statistics 37, 479-488): 4.9 % and 8.9 %
    - with the three values used here: 3.8 % and 5.2 %
    """
    padded = [*differences, reach, -reach, -reach]
    middle, freedom = statistics.fmean(padded), len(padded) - 1
    # s^2 / n with s^2 = sum / (n - 1) is the mean square / (n - 1)
    squares = statistics.fmean((difference - middle) ** 2 for difference in padded)
    return middle - student(freedom, level) * math.sqrt(squares / freedom)


def pass_at(k: int, solved: int, episodes: int) -> float:
    """Return the unbiased estimate of pass@k for one problem: `pass_at(2, 1, 4)` is 0.5.

    For n episodes, of which c are solved, the estimate is 1 - C(n - c, k) / C(n, k) (arXiv
    2107.03374, section 2.1). Raises ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    if not 1 <= k <= episodes or not 0 <= solved <= episodes:
        raise ValueError(
            f"pass@{k}: got episodes={episodes} and solved={solved}, expected 1 <= k <= episodes "
            "and 0 <= solved <= episodes."
        )
    return 1.0 - math.comb(episodes - solved, k) / math.comb(episodes, k)
