"""What MLflow hears of a run from beginning to end."""

import pytest
from mlflow import MlflowClient

from agentfly_core.runs.run import Run, opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import change_tags
from flows.reporting import mark, reporting, sent
from tests.support.experiments import experiment
from tests.support.mlflow_store import new_store


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")]
)
def test_a_run_that_stopped_says_so_and_runs_again_when_it_goes_on(
    tmp_path, monkeypatch, error, status
):
    monkeypatch.chdir(tmp_path)
    store = new_store(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)

    def told():
        client = MlflowClient(store)
        (run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
        return run.info.status, run.data.tags.get("agentfly.last_failure")

    with opened(experiment(tmp_path), "demo") as run:
        with pytest.raises(error), reporting(run):
            raise error("gates.failed allows 10%")
        assert told() == (status, f"{error.__name__}: gates.failed allows 10%")
        with reporting(run):
            pass
        assert told()[0] == "RUNNING"


@pytest.mark.slow
def test_a_tag_added_during_the_last_sync_is_sent_later(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", new_store(tmp_path))
    tiny = experiment(tmp_path)

    def add_tag(run, _):
        change_tags(run.store, run.name, ["late"], [])

    monkeypatch.setattr(Run, "finished", property(lambda run: True))
    monkeypatch.setattr("flows.reporting.sync", add_tag)
    with opened(tiny, "demo") as run, reporting(run):
        pass
    stored = sent(tiny.store, "demo")
    assert stored is not None
    assert stored != mark(RunRequest(tiny, "demo"))
