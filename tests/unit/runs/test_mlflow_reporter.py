"""What MLflow hears of a run that is read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentfly_core.runs.mlflow_reporter import RunReporter
from agentfly_core.runs.run import opened
from tests.support.tried_runs import experiment, finished, project


class Heard:
    """A tracker that keeps the steps of points and tables, and the tags."""

    def __init__(self) -> None:
        self.points_at: dict[str, list[int]] = {}
        self.tables: list[int] = []
        self.tagged: dict[str, str] = {}

    def points(self, metrics: dict[str, float], step: int, time_ms: int) -> None:
        for name in metrics:
            self.points_at.setdefault(name, []).append(step)

    def table(self, name: str, step: int, frame: object) -> None:
        self.tables.append(step)

    def tags(self, values: dict[str, str]) -> None:
        self.tagged |= values

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def test_what_mlflow_hears_of_a_fork_begins_behind_the_step_that_it_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = project(tmp_path)
    finished(store, "mine", "11110000")
    settings = ("fork={run: mine, step: 1}", "steps=3")
    finished(store, "new", "11111000", *settings)
    heard: Any = Heard()
    with opened(experiment(store, *settings), "new") as run:
        RunReporter(run, heard).everything()
    assert heard.points_at["agent/rollout/success"] == [2, 3]
    assert heard.points_at["evaluate/test/success"] == [1, 3]
    assert heard.tables == [2]
    assert heard.tagged["agentfly.parent"] == "mine"
