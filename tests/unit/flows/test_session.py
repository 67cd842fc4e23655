"""States of a run in MLflow from beginning to end."""

from typing import Any

import pytest
from mlflow import MlflowClient

from agentfly_core.config.site import Site
from agentfly_core.runs.run import Run, links_of, opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import change_tags
from flows.reporting import COMPLETE, report_rows, reporting, state_of
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
def test_a_tag_added_during_the_last_sync_is_sent_later(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", new_store(tmp_path))
    tiny = experiment(tmp_path)

    def add_tag(run, _):
        change_tags(run.store, run.name, ["late"], [])

    monkeypatch.setattr(Run, "finished", property(lambda run: True))
    monkeypatch.setattr("agentfly_core.runs.tracking.sync.sync", add_tag)
    with opened(tiny, "demo") as run, reporting(run):
        pass
    (complete,) = links_of(tiny.store, "demo")[COMPLETE]
    assert complete != state_of(RunRequest(tiny, "demo"))


@pytest.mark.slow
def test_rows_of_a_flow_that_is_retried_are_stored_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = new_store(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    rows: list[dict[str, Any]] = [{"episode": "a", "reward": 0.5}, {"episode": "b"}, {"reward": 1}]
    for _ in range(2):
        report_rows("tiny", {}, Site(), "rewards", "http://127.0.0.1:4200/runs/flow-run/5f0e", rows)
    client = MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
    sent = client.get_metric_history(run.info.run_id, "rewards/reward")
    assert [(point.step, point.value) for point in sent] == [(1, 0.5), (3, 1.0)]
    assert run.info.status == "FINISHED"
