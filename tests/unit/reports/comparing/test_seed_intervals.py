"""Intervals over problems and over seeds."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from agentfly_core.reports.comparing.seed_intervals import difference, student, success
from agentfly_core.runs import intervals


def run(*solved: float) -> dict[str, float]:
    return {f"p{number}": value for number, value in enumerate(solved)}


def test_students_t_is_that_of_the_tables() -> None:
    assert [round(student(freedom), 3) for freedom in (1, 2, 4, 30)] == [
        12.706,
        4.303,
        2.776,
        2.042,
    ]


def test_of_one_seed_the_interval_is_over_its_problems() -> None:
    one = run(*[1.0] * 8, *[0.0] * 2)
    found = success([one])
    assert (found.value, found.source) == (0.8, "problems")
    assert found.interval == intervals.wilson(8, 10)


def test_of_several_seeds_the_interval_is_students_over_their_shares() -> None:
    seeds = [run(1, 1, 1, 0, 0), run(1, 1, 1, 1, 0), run(1, 1, 0, 0, 0)]  # 0.6, 0.8, 0.4
    found = success(seeds)
    assert found.source == "seeds"
    assert found.value == pytest.approx(0.6)
    # 0.6 +- 4.303 * 0.2 / sqrt(3) = 0.6 +- 0.497, and a share is at most 1
    assert found.interval == (pytest.approx(0.1032, abs=1e-4), 1.0)


def test_of_one_seed_each_the_difference_is_paired_by_problem() -> None:
    before, after = run(1, 0, 1, 0, 0.5), run(1, 1, 1, 0, 1)
    found = difference([before], [after])
    assert (found.value, found.interval) == intervals.improvement(before, after)
    assert found.source == "problems"


def test_the_difference_of_two_groups_of_seeds_varies_with_problems_and_with_seeds() -> None:
    before = [run(1, 0, 0, 0), run(1, 0, 1, 0)]  # shares 0.25 and 0.5
    after = [run(1, 1, 0, 0), run(1, 1, 1, 1)]  # 0.5 and 1.0
    found = difference(before, after)
    # by problem 0, 1, 0, 0.5: mean 0.375, variance 0.2292; P = 0.0573
    # seeds: squares 0.03125 + 0.125 over 2, times 1/2 + 1/2; S = 0.078125
    # unexplained: by hand 0.09375 + 0.125 = 0.21875 of the eight cells, over 2 * 3, times 1 / 4
    shared = _unexplained(before) + _unexplained(after)
    whole = 0.2291667 / 4 + 0.078125 - shared / 6 / 4
    whole = max(whole, 0.078125)
    freedom = whole**2 / ((0.2291667 / 4) ** 2 / 3 + 0.078125**2 / 2)
    spread = student(max(freedom, 2)) * whole**0.5
    assert found.value == pytest.approx(0.375)
    assert found.interval == (
        pytest.approx(0.375 - spread, abs=1e-4),
        pytest.approx(0.375 + spread, abs=1e-4),
    )
    assert found.source == "problems and seeds"


def _unexplained(group: list[dict[str, float]]) -> float:
    shares = [fmean(solved.values()) for solved in group]
    total = 0.0
    for solved, share in zip(group, shares, strict=True):
        for problem, value in solved.items():
            mean = fmean(each[problem] for each in group)
            total += (value - share - mean + fmean(shares)) ** 2
    return total


def test_runs_that_solve_the_same_do_not_differ() -> None:
    same = [run(1, 0, 1), run(1, 0, 1)]
    assert difference(same, same).interval == (0.0, 0.0)


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
