import math
from itertools import combinations

import pytest

from agentfly_core.records.intervals import (
    Mean,
    Rate,
    mean,
    pass_at,
    student,
    success,
    wilson,
)


def test_the_interval_of_eight_in_ten_is_the_published_one() -> None:
    assert wilson(8, 10) == pytest.approx(
        (0.4901625, 0.9433178), abs=1e-6
    )  # R: prop.test(8, 10, correct = FALSE)


def test_intervals_of_no_and_full_success_have_width() -> None:
    # With p = 0 the formula is z^2/n / (1 + z^2/n) = 3.8415 / 13.8415.
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson(10, 10) == pytest.approx((1 - 0.27753, 1.0), abs=1e-5)


def test_a_thousand_problems_leave_three_percent_on_each_side() -> None:
    low, high = wilson(500, 1000)
    assert 0.5 - low == pytest.approx(0.0309, abs=1e-4)
    assert high - 0.5 == pytest.approx(0.0309, abs=1e-4)


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="successes=11 and trials=10"):
        wilson(11, 10)


def test_several_episodes_a_problem_count_as_one_trial() -> None:
    share, interval = success({"a": 1.0, "b": 0.5, "c": 0.0, "d": 0.5})
    assert share == 0.5
    assert interval == wilson(2, 4)


def test_the_success_of_no_problem_is_refused() -> None:
    with pytest.raises(ValueError, match="trials=0"):
        success({})


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("solved", [0, 1, 3, 5])
def test_pass_at_k_matches_the_count_of_all_choices(k: int, solved: int) -> None:
    choices = [*combinations([True] * solved + [False] * (5 - solved), k)]
    assert pass_at(k, solved, 5) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_pass_at_k_of_one_in_four_is_a_quarter_a_half_and_one() -> None:
    assert [pass_at(k, 1, 4) for k in (1, 2, 4)] == [0.25, 0.5, 1.0]


def test_pass_at_k_of_fewer_episodes_is_refused() -> None:
    with pytest.raises(ValueError, match="pass@4: got episodes=3 and solved=1"):
        pass_at(4, 1, 3)


def test_a_rate_counts_problems_and_not_their_episodes() -> None:
    rate = Rate.of({"a": 0.5, "b": 1.0, "c": 0.0, "d": 0.5})
    assert rate == Rate(0.5, wilson(2, 4), 4)
    assert rate.to_json() == {
        "problems": 4,
        "success": 0.5,
        "interval_low": wilson(2, 4)[0],
        "interval_high": wilson(2, 4)[1],
    }


def test_students_t_is_that_of_the_tables() -> None:
    assert [round(student(freedom), 3) for freedom in (1, 2, 4, 30)] == [
        12.706,
        4.303,
        2.776,
        2.042,
    ]


def numbered(*values: float) -> dict[str, float]:
    return {f"p{number}": value for number, value in enumerate(values)}


def test_the_interval_of_a_mean_adds_both_extreme_values() -> None:
    estimate = mean(numbered(*[0.0] * 2, *[2.0] * 6))
    assert estimate is not None and estimate.interval is not None
    assert (estimate.value, estimate.problems) == (1.5, 8)
    # three 0 and seven 2: mean 1.4, squares 3 * 1.96 + 7 * 0.36 = 8.4 over 9 and 10; t(9) = 2.262
    spread = 2.262 * (8.4 / 9 / 10) ** 0.5
    # 0.709 to 2.091, and no value is above 2
    assert estimate.interval == (pytest.approx(1.4 - spread, abs=1e-3), 2.0)


def test_the_interval_of_a_mean_stays_within_observed_values() -> None:
    ones, cents = mean(numbered(0.0, *[1.0] * 7)), mean(numbered(*[-1.0] * 7, -0.5))
    assert ones is not None and ones.interval is not None and ones.interval[1] == 1.0
    assert cents is not None and cents.interval is not None and cents.interval[0] == -1.0


@pytest.mark.parametrize("problems", [1, 3, 50, 100, 1000])
def test_the_interval_of_none_and_of_all_holds_that_share(problems: int) -> None:
    assert wilson(0, problems)[0] == 0.0
    assert wilson(problems, problems)[1] == 1.0


def test_few_or_equal_problems_give_no_interval_of_a_mean() -> None:
    few, alike = mean(numbered(0.0, *[1.0] * 6)), mean(numbered(*[1.0] * 8))
    assert few == Mean(pytest.approx(6 / 7), None, 7)  # type: ignore[arg-type]
    assert alike == Mean(1.0, None, 8)
    assert mean({}) is None


@pytest.mark.parametrize("problems", [8, 10, 20, 50])
def test_the_interval_of_a_mean_covers_over_93_percent(
    problems: int,
) -> None:
    intervals = {}
    for solved in range(1, problems):
        estimate = mean(numbered(*[1.0] * solved, *[0.0] * (problems - solved)))
        assert estimate is not None and estimate.interval is not None
        intervals[solved] = estimate.interval
    for share in [percent / 100 for percent in range(1, 100)]:
        chances = {
            solved: math.comb(problems, solved) * share**solved * (1 - share) ** (problems - solved)
            for solved in intervals
        }
        held = [chances[n] for n, (low, high) in intervals.items() if low <= share <= high]
        assert sum(held) / sum(chances.values()) > 0.93
