"""The lower bound of a paired difference, and how often it is wrong."""

from math import exp, lgamma, log, sqrt

import pytest

from agentfly_core.records.intervals import lower_bound, student

COUNT = 100


@pytest.fixture(scope="module")
def bounds() -> dict[tuple[int, int], float]:
    """Bounds by the number of problems, of 100, that only the challenger or only the champion
    solved.
    """

    def bound(won: int, lost: int) -> float:
        differences = [1.0] * won + [-1.0] * lost + [0.0] * (COUNT - won - lost)
        return lower_bound(differences, 1.0, 0.05)

    counts = range(COUNT + 1)
    return {(won, lost): bound(won, lost) for won in counts for lost in counts[: COUNT + 1 - won]}


def probability(won: int, lost: int, win: float, lose: float) -> float:
    """Probability of `won` and `lost` problems among 100, with the shares `win` and `lose`."""
    shares = {"won": (won, win), "lost": (lost, lose), "same": (COUNT - won - lost, 1 - win - lose)}
    seen = [(count, share) for count, share in shares.values() if count]
    if any(share == 0 for _, share in seen):
        return 0.0
    logs = [count * log(share) - lgamma(count + 1) for count, share in seen]
    return exp(lgamma(COUNT + 1) + sum(logs))


def error(bounds: dict[tuple[int, int], float], win: float, lose: float) -> float:
    """How often the bound is above the true difference, exactly."""
    return sum(
        probability(*counts, win, lose)
        for counts, bound in bounds.items()
        if bound > win - lose + 1e-12
    )


@pytest.mark.parametrize("differ", [0.02, 0.04, 0.06, 0.08, 0.10, 0.15, 0.2, 0.3, 0.5, 0.8])
def test_equal_policies_differ_in_at_most_one_of_twenty_cases(
    bounds: dict[tuple[int, int], float], differ: float
) -> None:
    assert error(bounds, differ / 2, differ / 2) <= 0.05


@pytest.mark.parametrize("margin", [0.02, 0.03, 0.05, 0.1])
@pytest.mark.parametrize("win", [0.0, 0.003, 0.01, 0.03, 0.1])
def test_a_worse_policy_passes_in_at_most_one_of_twenty_cases(
    bounds: dict[tuple[int, int], float], margin: float, win: float
) -> None:
    assert error(bounds, win, win + margin) <= 0.05


def test_the_bound_is_the_one_made_by_hand() -> None:
    # 1 1 0 0 0 and the three more, 1 -1 -1: mean 1/8, sum of squares 5, variance (5 - 8/64) / 7
    expected = 1 / 8 - student(7, 0.05) * sqrt((5 - 1 / 8) / 7 / 8)
    assert lower_bound([1.0, 1.0, 0.0, 0.0, 0.0], 1.0, 0.05) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("level", "freedom", "published"),
    [
        (0.05, 20, 1.725),
        (0.05, 30, 1.697),
        (0.05, 100, 1.660),
        (0.2, 30, 0.854),
        (0.05, 10**6, 1.645),
    ],
)
def test_students_t_is_the_published_one(level: float, freedom: int, published: float) -> None:
    assert student(freedom, level) == pytest.approx(published, abs=1e-3)
