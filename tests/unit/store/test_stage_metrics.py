"""Metrics that stages measured of themselves."""

from agentfly_core.store.stage_metrics import Measured, worst


def test_the_worst_metrics_of_several_shards_are_kept():
    one = Measured(
        1763740000000, 3.2, {"resources/Shop/wait_p95": 0.2, "resources/Shop/resets_failed": 1.0}
    )
    two = Measured(1763740000001, 3.1, {"resources/Shop/wait_p95": 0.5, "time/swap": 0.1})
    assert worst([one, two], "resources/") == {
        "resources/Shop/wait_p95": 0.5,
        "resources/Shop/resets_failed": 1.0,
    }
