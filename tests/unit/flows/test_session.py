"""What MLflow hears of a run from beginning to end."""

import pytest
from mlflow import MlflowClient

from agentfly_core.runs.run import opened
from flows.reporting import reporting
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
