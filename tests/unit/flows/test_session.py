"""States of a run in MLflow from beginning to end."""

import pandas as pd
import pytest
from mlflow import MlflowClient

from agentfly_core.config.site import Site
from agentfly_core.runs.run import opened
from flows.reporting import report_rows, reporting
from tests.support.experiments import experiment
from tests.support.mlflow_store import new_store


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")]
)
def test_a_stopped_run_is_failed_until_it_continues(tmp_path, monkeypatch, error, status):
    monkeypatch.chdir(tmp_path)
    store = new_store(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)

    def status_and_failure():
        client = MlflowClient(store)
        (run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
        return run.info.status, run.data.tags.get("agentfly.last_failure")

    with opened(experiment(tmp_path), "demo") as run:
        with pytest.raises(error), reporting(run):
            raise error("gates.failed allows 10%")
        assert status_and_failure() == (status, f"{error.__name__}: gates.failed allows 10%")
        with reporting(run):
            pass
        assert status_and_failure()[0] == "RUNNING"


@pytest.mark.slow
def test_rows_of_a_flow_that_is_retried_are_stored_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = new_store(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    rows = pd.DataFrame([{"episode": "one", "reward": 0.5}, {"episode": "two"}, {"reward": 1}])
    for _ in range(2):
        report_rows("tiny", {}, Site(), "rewards", "http://127.0.0.1:4200/runs/flow-run/5f0e", rows)
    client = MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
    sent = client.get_metric_history(run.info.run_id, "rewards/reward")
    assert [(point.step, point.value) for point in sent] == [(1, 0.5), (3, 1.0)]
    assert run.info.status == "FINISHED"
