"""MLflow is away for a whole run: the run does not mind, and MLflow hears of it once, later."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from conftest import Whole
from lives import RUN, TINY, TRAIN, Lives, digests
from mlflow import MlflowClient


def points(store: str) -> list[tuple[str, int, float, int]]:
    """Every point that an MLflow store has of its one run."""
    client = MlflowClient(store)
    (run,) = client.search_runs(["1"])
    names = sorted(run.data.metrics)
    return [(n, m.step, m.value, m.timestamp) for n in names for m in client.get_metric_history(run.info.run_id, n)]


def mlflow_run_id(folder: Path) -> str | None:
    """The id in the summary of the run there."""
    found: str | None = json.loads((folder / RUN / "summary.json").read_text())["mlflow_run_id"]
    return found


def test_a_run_without_mlflow_is_whole_and_its_metrics_arrive_once_when_it_is_back(
    begun: Path, lives: Lives, whole: Whole
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and nobody listens: connections are refused
        refused = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        end = lives.run(begun, *TRAIN, env={"MLFLOW_TRACKING_URI": refused})
    assert end.code == 0, end.printed
    assert f"MLflow ({refused}) does not answer" in end.printed
    assert f"Nothing is lost: `agentfly train {TINY} --run demo` sends it." in end.printed
    assert mlflow_run_id(begun) is None
    assert digests(begun) == digests(whole.folder)

    store = f"sqlite:///{begun}/mlflow.db"
    assert lives.run(begun, *TRAIN, env={"MLFLOW_TRACKING_URI": store}).code == 0
    sent = points(store)
    assert [step for metric, step, _, _ in sent if metric == "agent/rollout/reward"] == [1, 2, 3]
    assert [step for metric, step, _, _ in sent if metric == "evaluate/test/success"] == [0, 3]
    assert len(set(sent)) == len(sent)
    assert mlflow_run_id(begun) is not None

    assert lives.run(begun, *TRAIN, env={"MLFLOW_TRACKING_URI": store}).code == 0
    assert points(store) == sent
