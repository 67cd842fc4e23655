"""Warning signs of a real run: each has a metric, goes to MLflow, and can stop the run."""

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from agentfly_core.config.health_signs import SIGNS
from tests.support.killed_commands import RUN, TRAIN, Lives, Whole
from tests.support.mlflow_store import new_store


def test_every_vetted_sign_uses_a_metric_of_a_step(whole: Whole) -> None:
    for step in (1, 2, 3):
        metrics = json.loads((whole.folder / RUN / f"steps/{step:06d}/metrics.json").read_text())[
            "metrics"
        ]
        assert [sign.metric for sign in SIGNS.values() if sign and sign.metric not in metrics] == []
        assert {f"health/{name}" for name in SIGNS} <= {*metrics}
    assert "which was not measured" not in whole.end.printed


@pytest.mark.long
def test_a_sign_stops_the_run_with_its_reason_in_mlflow(begun: Path, lives: Lives) -> None:
    store = new_store(begun)
    signs = ("health.entropy={metric: train/entropy, below: 99, steps: 2, stop: true}",)
    end = lives.run(begun, *TRAIN, *signs, env={"MLFLOW_TRACKING_URI": store})
    assert end.code == 2
    assert "below 99, for 2 steps in a row (health.entropy)" in end.printed
    assert (begun / RUN / "steps/000002/policy").is_dir()
    assert not (begun / RUN / "steps/000003").exists()
    client = MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
    assert (run.info.status, run.data.metrics["health/entropy"]) == ("FAILED", 2.0)
    assert "(health.entropy)" in run.data.tags["agentfly.last_failure"]

    end = lives.run(begun, *TRAIN, "health.entropy=null", env={"MLFLOW_TRACKING_URI": store})
    assert end.code == 0, end.printed
