"""Metrics that stages measured of themselves."""

from agentfly_core.store.stage_metrics import Measured, combined


def test_metrics_of_several_shards_are_combined_by_name():
    one = Measured(
        1763740000000, 3.2, {"resources/Shop/wait_p95": 0.2, "resources/Shop/resets_failed": 1.0}
    )
    two = Measured(1763740000001, 3.1, {"resources/Shop/wait_p95": 0.5, "time/swap": 0.1})
    assert combined([one, two], "resources/", max) == {
        "resources/Shop/wait_p95": 0.5,
        "resources/Shop/resets_failed": 1.0,
    }
    assert combined([one, two], "resources/Shop/wait", sum) == {"resources/Shop/wait_p95": 0.7}
