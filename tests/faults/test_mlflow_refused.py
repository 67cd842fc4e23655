"""MLflow is away for a whole run: the run does not mind, and MLflow hears of it once, later."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from project import Project


def points(root: Path) -> list[tuple[str, int, float, int]]:
    """Every point that the project's own MLflow store has of its one run."""
    client = MlflowClient(f"sqlite:///{root}/.agentfly/mlflow.db")
    (run,) = client.search_runs(["1"])
    names = sorted(run.data.metrics)
    return [(n, m.step, m.value, m.timestamp) for n in names for m in client.get_metric_history(run.info.run_id, n)]


def summary(root: Path) -> dict[str, Any]:
    (path,) = root.glob("runs/*/summary.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_run_without_mlflow_is_whole_and_its_metrics_arrive_once_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    project = Project.clone(tmp_path)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and nobody listens: connections are refused
        refused = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        printed = project.run("agentfly", "train", "tiny", "seed=3", MLFLOW_TRACKING_URI=refused)
    name = summary(tmp_path)["run"]
    assert f"MLflow ({refused}) does not answer" in printed
    assert f"Nothing is lost: `agentfly train tiny seed=3 --run {name}` sends it." in printed
    assert (summary(tmp_path)["steps"], summary(tmp_path)["mlflow_run_id"]) == (2, None)

    project.run("agentfly", "train", "tiny", "seed=3", "--run", name)
    sent = points(tmp_path)
    assert [step for metric, step, _, _ in sent if metric == "agent/rollout/reward"] == [1, 2]
    assert [step for metric, step, _, _ in sent if metric == "evaluate/test/success"] == [0, 2]
    assert len(set(sent)) == len(sent)
    assert summary(tmp_path)["mlflow_run_id"] is not None

    project.run("agentfly", "train", "tiny", "seed=3", "--run", name)
    assert points(tmp_path) == sent
