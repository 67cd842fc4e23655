"""Intervals over problems and over seeds."""

import random

import pytest

from agentfly_core.records import intervals
from agentfly_core.records.intervals import student
from agentfly_core.reports.compare.seed_intervals import difference, success


def run(*solved: float) -> dict[str, float]:
    return {f"p{number}": value for number, value in enumerate(solved)}


def test_the_interval_of_one_seed_is_over_its_problems() -> None:
    one = run(*[1.0] * 8, *[0.0] * 2)
    estimate = success([one])
    assert (estimate.value, estimate.source) == (0.8, "problems")
    assert estimate.interval == intervals.wilson(8, 10)


def test_the_interval_of_several_seeds_is_students() -> None:
    seeds = [run(1, 1, 1, 0, 0), run(1, 1, 1, 1, 0), run(1, 1, 0, 0, 0)]  # 0.6, 0.8, 0.4
    estimate = success(seeds)
    assert estimate.source == "problems and seeds"
    assert estimate.value == pytest.approx(0.6)
    # 0.6 +- 4.303 * 0.2 / sqrt(3) = 0.6 +- 0.497, and a share is at most 1
    assert estimate.interval == (pytest.approx(0.1032, abs=1e-4), 1.0)


def test_equal_seeds_keep_the_interval_over_problems() -> None:
    assert success([run(*[0.0] * 8)] * 3).interval == intervals.wilson(0, 8)


def test_the_difference_of_single_seeds_is_paired_by_problem() -> None:
    estimate = difference([run(1, 0, 1, 0)], [run(1, 1, 1, 0)])
    # 0, 1, 0, 0 and 1, -1 have the mean 1 / 6 and the variance (3 - 6 / 36) / 5
    spread = student(5) * ((3 - 1 / 6) / 5 / 6) ** 0.5
    assert estimate.value == 0.25
    assert estimate.interval == (pytest.approx(0.25 - spread), 1.0)  # at most 1
    assert estimate.source == "problems"


def test_the_difference_of_groups_varies_by_problem_and_seed() -> None:
    before = [run(1, 0, 0, 0), run(1, 0, 1, 0)]  # shares 0.25 and 0.5
    after = [run(1, 1, 0, 0), run(1, 1, 1, 1)]  # 0.5 and 1.0
    estimate = difference(before, after)
    # by problem 0, 1, 0, 0.5 and 1, -1: mean 0.25, squares 2.875, over 5 and 6
    by_problem = 2.875 / 5 / 6
    # shares 0.25, 0.5 and 0.5, 1.0: squares 0.03125 and 0.125 over 2, times 1 / 2 + 1 / 2
    by_seed = 0.15625 / 2
    # residuals: squares of +-1 / 8, and of +-3 / 8 on one problem; of +-1 / 4 on all
    shared = (2 * (3 / 64 + 9 / 64) + 8 / 16) / (2 * 3) / 4
    whole = by_problem + by_seed - shared
    freedom = whole**2 / (by_problem**2 / 5 + by_seed**2 / 2)
    spread = student(freedom) * whole**0.5
    assert estimate.value == pytest.approx(0.375)
    assert estimate.interval == (pytest.approx(0.375 - spread, abs=1e-4), 1.0)
    assert estimate.source == "problems and seeds"


@pytest.mark.parametrize("count", [1, 3])
def test_equal_results_on_few_problems_have_a_wide_interval(count: int) -> None:
    same = [run(*[1.0, 0.0] * 50)] * count
    low, high = difference(same, same).interval
    # like 2 different problems of 102, one in each direction
    assert (low, high) == (pytest.approx(-0.0275, abs=3e-4), pytest.approx(0.0275, abs=3e-4))


def test_the_interval_contains_the_true_difference_at_its_rate() -> None:
    dice, held, effect = random.Random(0), 0, 0.1

    def group(easy: list[float], count: int) -> list[dict[str, float]]:
        seeds = [dice.gauss(0, 0.05) for _ in range(count)]
        return [run(*(float(dice.random() < each + seed) for each in easy)) for seed in seeds]

    for _ in range(200):
        easy = [dice.uniform(0.2, 0.7) for _ in range(60)]
        harder = group(easy, 3)
        estimate = difference(harder, group([each + effect for each in easy], 3))
        held += estimate.interval[0] <= effect <= estimate.interval[1]
    assert 180 <= held <= 199
