"""A run's flow run in Prefect carries its name, and leads to its run in MLflow."""

from pathlib import Path

import pytest
from prefect import flow
from prefect.runtime import flow_run

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.run import opened
from agentfly_core.runs.tracking.mlflow_client import MlflowRun, MlflowStore
from agentfly_core.store.store import Store
from flows.local.own_servers import mark
from flows.local.prefect_server import deliver, use
from flows.run_pages import artifact_key, name_after, show_summary
from tests.support.servers import listener, request

RUN = "My_shop-1f2e3d4c"
SUMMARY = Summary(
    run=RUN,
    experiment="My_shop",
    steps=6,
    success_before=0.5,
    interval_before=[0.4, 0.6],
    success_after=0.75,
    interval_after=[0.65, 0.83],
    seconds={},
)


@pytest.fixture
def api(prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Prefect server that this process uses, in a project of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    use(prefect_api)
    return prefect_api


@pytest.fixture
def mlflow_run(api: str, tmp_path: Path) -> str:
    """The id of a run in MLflow."""
    place = MlflowStore.choose(tmp_path / ".agentfly")
    return MlflowRun(place, "My_shop", RUN, "4f1c", 0).run_id


@pytest.fixture
def experiment(mlflow_run: str, tmp_path: Path) -> Experiment:
    """An experiment with a run that has an MLflow run."""
    settings = {
        "model": "nano:calculator",
        "data": {"use": "tests.support.problems:clean", "train": 8, "test": 4},
        "steps": 6,
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
    }
    store = Store.at(str(tmp_path), tmp_path)
    made = Experiment.of("My_shop", Settings.model_validate(settings), {}, Site(), store)
    with opened(made, RUN) as run:
        run.link("mlflow_run_ids", mlflow_run)
    return made


def flow_run_of(experiment: Experiment) -> str:
    """The id of a flow run that has taken the run's name, and shown the summary."""

    @flow(name="train", flow_run_name="My_shop")
    def train() -> str:
        name_after(RUN)
        show_summary(experiment.store, experiment.site, SUMMARY)
        return str(flow_run.id)

    trained = train()
    deliver()
    return trained


def summary_of(api: str, flow_run_id: str) -> str:
    wanted = {"artifacts": {"flow_run_id": {"any_": [flow_run_id]}}}
    (artifact,) = request("POST", f"{api}/artifacts/filter", json=wanted)
    assert (artifact["key"], artifact["type"]) == (artifact_key("run", "My_shop"), "markdown")
    return str(artifact["data"])


def test_the_flow_run_has_the_run_s_name_and_shows_how_it_ended(
    api: str, experiment: Experiment
) -> None:
    mine = flow_run_of(experiment)
    assert request("GET", f"{api}/flow_runs/{mine}")["name"] == RUN
    page = summary_of(api, mine)
    assert page.startswith(f"**{RUN}: 6 steps of My_shop**")
    assert "| before | 50.0% | 40.0% to 60.0% |\n| after | 75.0% | 65.0% to 83.0% |" in page


def test_the_link_names_the_server_or_how_to_start_it(
    api: str, experiment: Experiment, mlflow_run: str, tmp_path: Path
) -> None:
    hint = f"(while `agentfly open mlflow {RUN}` serves it)"
    alone = summary_of(api, flow_run_of(experiment))
    assert f"(http://127.0.0.1:5000/#/experiments/1/runs/{mlflow_run}/" in alone
    assert hint in alone

    place = MlflowStore.choose(tmp_path / ".agentfly")
    with listener(mark("mlflow", place.state, place.uri)) as port:
        served = summary_of(api, flow_run_of(experiment))
    assert f"(http://127.0.0.1:{port}/#/experiments/1/runs/{mlflow_run}/" in served
    assert hint not in served
