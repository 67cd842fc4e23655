"""Learning as text: bars on common scales."""

from pathlib import Path

import pytest

from agentfly_core.reports.compare.run_steps import AXES, Curve, curve, plotted
from agentfly_core.runs.run import opened
from agentfly_core.store.store import Store
from tests.support.evaluated_runs import experiment_with, finished, project


def curve_of(success: list[float], *ends: float) -> Curve:
    return Curve(tuple(success), dict.fromkeys(AXES, ends))


def test_groups_are_drawn_on_common_scales_to_their_last_step() -> None:
    groups = {"slow": [curve_of([0.0, 0.5], 1, 4)], "faster": [curve_of([0.0, 1.0], 1, 2)]}
    assert plotted(groups, "seconds", width=8) == [
        "success in training over seconds, 0 to 4; ▁ 0%, █ 100%",
        "  slow    ▁▁▅▅▅▅▅▅",
        "  faster  ▁▁██",
    ]


def test_a_bar_of_several_steps_or_runs_is_their_mean() -> None:
    groups = {
        "one": [
            curve_of([0.0, 1.0, 1.0, 1.0], 1, 2, 3, 4),
            curve_of([0.0, 0.0, 0.0, 1.0], 1, 2, 3, 4),
        ]
    }
    # 0, 0, 1 and 0; then 1, 1, 0 and 1
    assert plotted(groups, "steps", width=2)[1] == "  one  ▃▆"


def test_runs_of_different_speeds_count_equally() -> None:
    # over 4 seconds 1 and 0, then 1 alone: the slow run ends its only step last
    groups = {"one": [curve_of([0.0, 0.0], 1, 2), curve_of([1.0], 4)]}
    assert plotted(groups, "seconds", width=4)[1] == "  one  ▅▅██"


def test_success_that_never_changes_is_a_line_at_the_bottom() -> None:
    assert plotted({"one": [curve_of([0.5], 1)]}, "steps", width=3) == [
        "success in training over steps, 0 to 1; always 50%",
        "  one  ▁▁▁",
    ]


def test_runs_without_a_scored_episode_have_no_curve() -> None:
    assert plotted({"one": [curve_of([])]}, "steps") == []


def test_the_curve_of_a_fork_begins_with_its_origins_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store: Store = project(tmp_path)
    finished(store, "old", "11110000")
    with opened(experiment_with(store, "steps=3", "fork={run: old, step: 2}"), "new"):
        pass
    learning = curve(store, "new", 2)
    assert learning.success == pytest.approx((0.5, 0.6))
    assert learning.reached == {
        "steps": (1.0, 2.0),
        "sampled tokens": (80.0, 160.0),
        "seconds": (5.0, 10.0),
    }


def test_seconds_leave_out_overlaps_and_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store: Store = project(tmp_path)
    finished(store, "one", "11110000", "steps=4")
    # the stages of each step took 5 seconds; the third step began after an hour
    for number, ended in enumerate((5_000, 8_000, 3_608_000, 3_610_500), 1):
        uri = f"runs/one/steps/{number:06d}/metrics.json"
        store.write_json(uri, {**store.read_json(uri), "time_ms": ended})
    assert curve(store, "one", 4).reached["seconds"] == (5.0, 8.0, 13.0, 15.5)
