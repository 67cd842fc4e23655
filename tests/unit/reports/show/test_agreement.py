"""How far two rewards agree."""

from __future__ import annotations

import pytest

from agentfly_core.reports.show.agreement import agreement, ranks


def test_pairs_are_compared_within_groups_only() -> None:
    alike = [(0.0, 5.0), (1.0, 6.0)]
    turned = [(0.0, 1.0), (1.0, 0.0), (1.0, 0.0)]
    found = agreement([alike, turned])
    assert (found.alike, found.turned) == (1, 2)
    assert (found.groups, found.changed, found.reversed) == (2, 1, 1)
    assert found.tau == pytest.approx((1 - 2) / 3)


def test_tau_is_that_of_kendall_with_ties() -> None:
    """Four episodes: of 6 pairs the old reward ties 2 and the new one 1; 4 are alike, 0 turned."""
    found = agreement([[(0, 1), (0, 2), (1, 3), (1, 3)]])
    assert (found.alike, found.turned, found.by_old, found.by_new) == (4, 0, 4, 5)
    assert found.tau == pytest.approx(4 / (4 * 5) ** 0.5)
    assert (found.changed, found.reversed) == (1, 0)


def test_a_reward_that_tells_nothing_apart_has_no_tau() -> None:
    found = agreement([[(1.0, 0.2), (1.0, 0.9)]])
    assert (found.tau, found.changed) == (None, 1)


def test_the_same_order_on_another_scale_changes_nothing() -> None:
    found = agreement([[(0.0, -3.0), (0.5, 2.0), (1.0, 900.0)]])
    assert (found.tau, found.changed) == (1.0, 0)


def test_ranks_are_shares_and_equal_values_share_theirs() -> None:
    assert ranks([0, 1, 1, 5]) == [0.125, 0.5, 0.5, 0.875]
