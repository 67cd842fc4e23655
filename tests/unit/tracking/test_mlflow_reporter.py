"""What MLflow hears of a run that is read from its files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.runs.run import opened
from agentfly_core.runs.run_tags import change_tags
from agentfly_core.runs.summary import steps_frame
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.tracking.mlflow_reporter import RunReporter
from tests.support.tried_runs import BASE, experiment_with, finished, on_further, project

HARD = "evaluate.datasets={hard: {use: 'tests.support.problems:kinds', test: 8}}"


class Heard:
    """A tracker that keeps the steps of points and tables, tags, and a policy's lineage."""

    def __init__(self) -> None:
        self.lineage: dict[str, str] = {}
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

    def register(self, name: str, uri: str, digest: str, success: object, lineage: Any) -> None:
        self.lineage |= lineage

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A project in which the run `mine` is finished."""
    monkeypatch.chdir(tmp_path)
    made = project(tmp_path)
    finished(made, "mine", "11110000")
    return made


def forked(store: Store, *settings: str) -> tuple[str, ...]:
    """The settings of the run `new`, finished, which continues from step 1 of `mine`."""
    changed = ("fork={run: mine, step: 1}", "steps=3", *settings)
    finished(store, "new", "11111000", *changed)
    return changed


def heard(store: Store, settings: tuple[str, ...], tags: tuple[str, ...] = ()) -> Heard:
    """All that is told of `new`, which gets these tags once its report has begun."""
    tracker: Any = Heard()
    with opened(experiment_with(store, *settings), "new") as run:
        reporter = RunReporter(run, tracker)
        change_tags(store, "new", tags, [])
        reporter.everything()
    found: Heard = tracker
    return found


def test_what_mlflow_hears_of_a_fork_begins_behind_the_step_that_it_goes_on_from(
    store: Store,
) -> None:
    found = heard(store, forked(store))
    assert found.points_at["agent/rollout/success"] == [2, 3]
    assert found.points_at["evaluate/test/success"] == [1, 3]
    assert found.tables == [2]
    assert found.tagged["agentfly.parent"] == "mine"


def test_a_lost_metrics_file_of_a_step_is_named(store: Store) -> None:
    settings = forked(store)
    lost = Path(store.root, "runs/new/steps/000002/metrics.json")
    lost.unlink()
    with pytest.raises(Damaged, match=re.escape(f"{lost} is missing.")):
        heard(store, settings)
    with pytest.raises(Damaged, match=re.escape(f"{lost} is missing.")):
        steps_frame(store, "new", experiment_with(store, *settings).settings.own_steps)


def test_mlflow_hears_which_model_an_adapter_stands_on(store: Store) -> None:
    lineage = heard(store, forked(store, "adapter={rank: 4}")).lineage
    base = {name: lineage[f"agentfly.base_{name}"] for name in ("uri", "digest")}
    assert base == {"uri": f"{store.uri}/{BASE.uri}", "digest": BASE.digest}


def test_mlflow_hears_at_the_end_the_tags_that_a_run_was_given_meanwhile(store: Store) -> None:
    found = heard(store, forked(store), tags=("keep", "paper"))
    assert found.tagged["agentfly.tags"] == "keep paper"


def test_mlflow_hears_how_a_policy_did_on_further_datasets(store: Store) -> None:
    settings = forked(store, HARD)
    on_further(store, "new", "hard", "11000000", *settings)
    assert heard(store, settings).points_at["evaluate/hard/success"] == [1, 3]
