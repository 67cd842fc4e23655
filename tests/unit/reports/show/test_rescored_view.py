"""Agreement of two rewards."""

import pandas as pd
import pytest

from agentfly_core.reports.show.rescored_view import COLUMNS, TwiceScored, tau


def judged(*groups: list[tuple[float, float]]) -> pd.DataFrame:
    """Episodes by their old and new reward, in groups."""
    rows = [
        (7, "add", chain, f"g{number}", *rewards)
        for number, group in enumerate(groups)
        for chain, rewards in enumerate(group)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def test_pairs_are_compared_within_groups_only() -> None:
    alike = [(0.0, 5.0), (1.0, 6.0)]
    turned = [(0.0, 1.0), (1.0, 0.0), (1.0, 0.0)]
    assert tau(judged(alike, turned)) == pytest.approx((1 - 2) / 3)


def test_tau_is_kendalls_tau_with_ties() -> None:
    """Of 6 pairs of 4 episodes the old reward ties 2 and the new one 1; 4 agree, 0 are reversed."""
    assert tau(judged([(0, 1), (0, 2), (1, 3), (1, 3)])) == pytest.approx(4 / (4 * 5) ** 0.5)


def test_a_constant_reward_has_no_tau() -> None:
    assert tau(judged([(1.0, 0.2), (1.0, 0.9)])) is None


def test_groups_of_one_episode_are_one_group() -> None:
    assert tau(judged([(0.0, -3.0)], [(0.5, 2.0)], [(1.0, 900.0)])) == 1.0


def test_the_largest_differences_of_rank_come_first() -> None:
    episodes = judged([(0.0, 5.0), (1.0, 6.0), (2.0, 0.0), (2.0, 2.0)])
    furthest = TwiceScored(episodes, {7: None}, {7: []}).furthest
    assert [episode["chain"] for episode in furthest] == [2, 0, 1]
