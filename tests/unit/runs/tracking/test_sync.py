"""Data of a run that a sync sends to MLflow."""

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.experiment.keys import StageKeys
from agentfly_core.runs.run import opened
from agentfly_core.runs.run_tags import change_tags
from agentfly_core.runs.summary import steps_frame
from agentfly_core.runs.tracking import sync as sync_module
from agentfly_core.runs.tracking.mlflow_client import MlflowRun
from agentfly_core.runs.tracking.sync import SYNCED, sync
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from tests.support.evaluated_runs import (
    BASE,
    experiment_with,
    finished,
    on_further,
    project,
    validated,
)

HARD = "evaluate.datasets={hard: {use: 'tests.support.problems:kinds', test: 8}}"


class Sent:
    """An MLflow run that counts the points and tables it receives, by metric and step."""

    run_id = "5f0e"

    def __init__(self) -> None:
        self.lineage: dict[str, str] = {}
        self.sent: Counter[tuple[str, int]] = Counter()
        self.tagged: dict[str, str] = {}
        self.status = "RUNNING"

    def tag(self, name: str) -> str:
        return self.tagged.get(name, "")

    def tags(self, values: dict[str, str]) -> None:
        self.tagged |= values

    def points(self, metrics: dict[str, float], step: int, time_ms: int) -> None:
        self.sent.update((name, step) for name in metrics)

    def table(self, name: str, step: int, frame: object) -> None:
        self.sent[name, step] += 1

    def register(self, name: str, lineage: dict[str, str]) -> None:
        self.lineage |= lineage

    def finish(self, status: str, time_ms: int, summary: object) -> None:
        self.status = status

    def settings(self, values: object, site: object) -> None:
        pass

    def dataset(self, name: str, uri: str, digest: str, version: str) -> None:
        pass

    def steps_of(self, name: str) -> list[int]:
        return sorted(step for metric, step in self.sent if metric == name)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A project with the finished run `mine`, which is without episodes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sync_module.episodes, "read_step", lambda *_: None)
    monkeypatch.setattr(sync_module.episodes, "table", lambda _: None)
    made = project(tmp_path)
    finished(made, "mine", "11110000")
    return made


def forked(store: Store, *settings: str) -> tuple[str, ...]:
    """Settings of the finished run `new`, which continues from step 1 of `mine`."""
    changed = ("fork={run: mine, step: 1}", "steps=3", *settings)
    finished(store, "new", "11111000", *changed)
    return changed


def synced(store: Store, settings: tuple[str, ...], sent: Any = None) -> Sent:
    """Return the MLflow data after a sync of `new`, by default after the first one."""
    mlflow: Any = sent or Sent()
    with opened(experiment_with(store, *settings), "new") as run:
        sync(run, mlflow)
    done: Sent = mlflow
    return done


def test_a_fork_is_sent_from_its_first_own_step(store: Store) -> None:
    mlflow = synced(store, forked(store))
    assert mlflow.steps_of("rollout/success") == [2, 3]
    assert mlflow.steps_of("evaluate/test/success") == [1, 3]
    assert mlflow.steps_of("trajectories") == [2]
    assert mlflow.tagged["agentfly.parent"] == "mine"
    assert mlflow.status == "FINISHED"
    assert store.read_json("runs/new/links.json") == {"mlflow_run_ids": ["5f0e"]}


def test_the_next_sync_continues_after_the_last_complete_step(store: Store) -> None:
    settings, mlflow = forked(store), Sent()
    mlflow.tagged = synced(store, settings).tagged | {SYNCED: "2"}
    synced(store, settings, mlflow)
    assert mlflow.steps_of("rollout/success") == [3]
    assert mlflow.steps_of("time/prepare") == []
    assert mlflow.tagged[SYNCED] == "3"


def test_a_step_is_complete_once_mlflow_has_its_evaluation(store: Store) -> None:
    settings = forked(store, "evaluate.every=1")
    store.remove("runs/new/summary.json")
    mlflow = synced(store, settings)
    assert (mlflow.tagged[SYNCED], mlflow.steps_of("rollout/success")) == ("1", [2])
    validated(store, "new", 2, *settings)
    store.remove("runs/new/steps/000003/metrics.json")
    synced(store, settings, mlflow)
    assert mlflow.tagged[SYNCED] == "2"
    assert mlflow.steps_of("evaluate/validation/success") == [2]
    assert mlflow.status == "RUNNING"


def test_steps_are_sent_again_after_a_changed_evaluation(store: Store) -> None:
    settings = forked(store)
    mlflow = synced(store, settings)
    synced(store, settings, mlflow)
    assert mlflow.sent["rollout/success", 2] == 1
    synced(store, (*settings, "evaluate.pass_at=[1]"), mlflow)
    assert mlflow.sent["rollout/success", 2] == 2
    assert mlflow.steps_of("evaluate/test/pass_at_1") == [1, 3]


def test_a_lost_metrics_file_of_a_step_is_named(store: Store) -> None:
    settings = forked(store)
    lost = Path(store.root, "runs/new/steps/000002/metrics.json")
    lost.unlink()
    with pytest.raises(Damaged, match=re.escape(f"{lost} is missing.")):
        synced(store, settings)
    with pytest.raises(Damaged, match=re.escape(f"{lost} is missing.")):
        steps_frame(store, "new", experiment_with(store, *settings).settings.own_steps)


def test_a_model_version_names_the_model_of_an_adapter(store: Store) -> None:
    lineage = synced(store, forked(store, "adapter={rank: 4}")).lineage
    base = {name: lineage[f"agentfly.base_{name}"] for name in ("uri", "digest")}
    assert base == {"uri": f"{store.uri}/{BASE.uri}", "digest": BASE.digest}


def test_a_sync_sends_the_users_tags(store: Store) -> None:
    settings = forked(store)
    change_tags(store, "new", ["paper", "keep"], [])
    assert synced(store, settings).tagged["agentfly.tags"] == "keep paper"


def test_evaluations_on_further_datasets_are_sent(store: Store) -> None:
    settings = forked(store, HARD)
    on_further(store, "new", "hard", "11000000", *settings)
    assert synced(store, settings).steps_of("evaluate/hard/success") == [1, 3]


def test_a_data_file_that_changes_during_the_run_stops_no_sync(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, mlflow = forked(store), Sent()
    with opened(experiment_with(store, *settings), "new") as run:
        other = ArtifactKey("artifacts/prepare/77b0", "prepare", "77b0", {})
        monkeypatch.setattr(StageKeys, "prepare", lambda _: other)
        sync(run, mlflow)  # type: ignore[arg-type]
    assert mlflow.steps_of("rollout/success") == [2, 3]
    assert mlflow.steps_of("evaluate/test/success") == [1, 3]


def test_a_refusing_artifact_store_holds_back_no_metric(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("403")

    def gone(*_: object) -> None:
        raise ConnectionRefusedError

    mlflow: Any = MlflowRun.__new__(MlflowRun)
    mlflow.run_id, mlflow.tags = "5f0e", lambda _: None
    mlflow.client = SimpleNamespace(log_inputs=refuse, get_run=lambda _: None)
    mlflow.dataset("shop", "artifacts/prepare/9f2c", "9f2c", "none: not wanted")
    assert caplog.messages == ["MLflow refused the dataset shop (PermissionError: 403)."]
    mlflow.client.get_run = gone
    with pytest.raises(ConnectionRefusedError):
        mlflow.dataset("shop", "artifacts/prepare/9f2c", "9f2c", "none: not wanted")
