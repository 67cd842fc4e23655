"""Intervals over problems and over seeds."""

from __future__ import annotations

import random

import pytest

from agentfly_core.records import intervals
from agentfly_core.records.intervals import student
from agentfly_core.reports.compare.seed_intervals import difference, success


def run(*solved: float) -> dict[str, float]:
    return {f"p{number}": value for number, value in enumerate(solved)}


def test_of_one_seed_the_interval_is_over_its_problems() -> None:
    one = run(*[1.0] * 8, *[0.0] * 2)
    found = success([one])
    assert (found.value, found.source) == (0.8, "problems")
    assert found.interval == intervals.wilson(8, 10)


def test_of_several_seeds_the_interval_is_students_over_their_shares() -> None:
    seeds = [run(1, 1, 1, 0, 0), run(1, 1, 1, 1, 0), run(1, 1, 0, 0, 0)]  # 0.6, 0.8, 0.4
    found = success(seeds)
    assert found.source == "problems and seeds"
    assert found.value == pytest.approx(0.6)
    # 0.6 +- 4.303 * 0.2 / sqrt(3) = 0.6 +- 0.497, and a share is at most 1
    assert found.interval == (pytest.approx(0.1032, abs=1e-4), 1.0)


def test_seeds_that_agree_say_nothing_of_other_problems() -> None:
    assert success([run(*[0.0] * 8)] * 3).interval == intervals.wilson(0, 8)


def test_of_one_seed_each_the_difference_is_paired_by_problem() -> None:
    found = difference([run(1, 0, 1, 0)], [run(1, 1, 1, 0)])
    # 0, 1, 0, 0 and 1, -1 have the mean 1 / 6 and the variance (3 - 6 / 36) / 5
    spread = student(5) * ((3 - 1 / 6) / 5 / 6) ** 0.5
    assert found.value == 0.25
    assert found.interval == (pytest.approx(0.25 - spread), 1.0)  # no more than all
    assert found.source == "problems"


def test_the_difference_of_two_groups_of_seeds_varies_with_problems_and_with_seeds() -> None:
    before = [run(1, 0, 0, 0), run(1, 0, 1, 0)]  # shares 0.25 and 0.5
    after = [run(1, 1, 0, 0), run(1, 1, 1, 1)]  # 0.5 and 1.0
    found = difference(before, after)
    # by problem 0, 1, 0, 0.5 and 1, -1: mean 0.25, squares 2.875, over 5 and 6
    by_problem = 2.875 / 5 / 6
    # shares 0.25, 0.5 and 0.5, 1.0: squares 0.03125 and 0.125 over 2, times 1 / 2 + 1 / 2
    by_seed = 0.15625 / 2
    # what neither explains: squares of +-1 / 8, and of +-3 / 8 on one problem; of +-1 / 4 on all
    shared = (2 * (3 / 64 + 9 / 64) + 8 / 16) / (2 * 3) / 4
    whole = by_problem + by_seed - shared
    freedom = whole**2 / (by_problem**2 / 5 + by_seed**2 / 2)
    spread = student(freedom) * whole**0.5
    assert found.value == pytest.approx(0.375)
    assert found.interval == (pytest.approx(0.375 - spread, abs=1e-4), 1.0)
    assert found.source == "problems and seeds"


@pytest.mark.parametrize("count", [1, 3])
def test_runs_that_solve_the_same_of_few_problems_are_not_sure_to_be_equal(count: int) -> None:
    same = [run(*[1.0, 0.0] * 50)] * count
    low, high = difference(same, same).interval
    # as if 2 of 102 problems differed, one for each side
    assert (low, high) == (pytest.approx(-0.0275, abs=3e-4), pytest.approx(0.0275, abs=3e-4))


def test_the_interval_holds_the_true_difference_as_often_as_it_says() -> None:
    dice, held, effect = random.Random(0), 0, 0.1

    def group(easy: list[float], count: int) -> list[dict[str, float]]:
        seeds = [dice.gauss(0, 0.05) for _ in range(count)]
        return [run(*(float(dice.random() < each + seed) for each in easy)) for seed in seeds]

    for _ in range(200):
        easy = [dice.uniform(0.2, 0.7) for _ in range(60)]
        harder = group(easy, 3)
        found = difference(harder, group([each + effect for each in easy], 3))
        held += found.interval[0] <= effect <= found.interval[1]
    assert 180 <= held <= 199
