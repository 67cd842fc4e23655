"""The report of a night is in Prefect and in MLflow, with links in both directions."""

import logging
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from prefect import flow
from prefect.runtime import flow_run

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.runs.run import opened
from agentfly_core.runs.tracking.mlflow_client import FLOW_RUN, MlflowRun, MlflowStore
from agentfly_core.store.store import Store
from flows.local.prefect_server import deliver, use
from flows.run_pages import artifact_key, report_night
from tests.support.judged_night import played_night
from tests.support.servers import request

NIGHT = "nightly-2026-11-21"


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """A project with a night that no service has heard of."""
    monkeypatch.chdir(tmp_path)
    settings = {
        "model": "nano:calculator",
        "data": {"use": "tests.support.problems:clean", "train": 8, "test": 40},
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "rollout": {"shard": 64},
        "steps": 2,
    }
    store = Store.at(str(tmp_path), tmp_path)
    made = Experiment.of("My_shop", Settings.model_validate(settings), {}, Site(), store)
    rewards = {"rollout/reward": 0.5, "rollout/avg_sampled_tokens": 4.0}
    played_night(
        made,
        NIGHT,
        lambda number: ("old", float(number < 10)),
        lambda number: ("new", float(number < 30)),
        [rewards, rewards],
    )
    return made


@pytest.fixture
def api(prefect_api: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Prefect server that this process uses."""
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("PREFECT_HOME", str(experiment.store.root))
    use(prefect_api)
    return prefect_api


def reported(experiment: Experiment) -> str:
    """The id of the flow run in which the night was reported."""

    @flow(name="nightly")
    def nightly() -> str:
        report_night(NightLedger(experiment.store, experiment.name), experiment.site, NIGHT)
        return str(flow_run.id)

    night = nightly()
    deliver()
    return night


def artifacts(api: str, flow_run_id: str) -> list[dict[str, str]]:
    wanted = {"artifacts": {"flow_run_id": {"any_": [flow_run_id]}}}
    stored: list[dict[str, str]] = request("POST", f"{api}/artifacts/filter", json=wanted)
    return stored


def test_the_reports_in_prefect_and_mlflow_link_to_each_other(
    experiment: Experiment, api: str
) -> None:
    place = MlflowStore.choose(experiment.store.root / ".agentfly")
    mlflow = MlflowRun(place, "My_shop", NIGHT, "4f1c", int(time.time() * 1000))
    mlflow.finish("FINISHED", int(time.time() * 1000))
    with opened(experiment, NIGHT) as run:
        run.link("mlflow_run_ids", mlflow.run_id)

    mine = reported(experiment)
    written = (experiment.store.root / RunLayout(NIGHT).report).read_text()
    first = f"# {NIGHT} of My_shop: promoted"
    assert written.startswith(first)

    (artifact,) = artifacts(api, mine)
    assert (artifact["key"], artifact["type"]) == (artifact_key("night", "My_shop"), "markdown")
    run_page = f"http://127.0.0.1:5000/#/experiments/1/runs/{mlflow.run_id}/"
    assert artifact["data"].startswith(f"{first}\n\n[The night's run in MLflow]({run_page}")

    client, page = MlflowClient(place.uri), f"{api.removesuffix('/api')}/runs/flow-run/{mine}"
    info = client.get_run(mlflow.run_id)
    assert (info.info.status, info.data.tags[FLOW_RUN]) == ("FINISHED", page)
    text = Path(client.download_artifacts(mlflow.run_id, "report.md")).read_text()
    assert text.startswith(first) and f"]({page})" in text


def test_a_night_unknown_to_mlflow_is_reported_in_prefect(experiment: Experiment, api: str) -> None:
    (artifact,) = artifacts(api, reported(experiment))
    assert "Success" in artifact["data"] and "in MLflow](" not in artifact["data"]


def test_a_night_without_a_report_continues(
    experiment: Experiment, api: str, caplog: pytest.LogCaptureFixture
) -> None:
    experiment.store.remove(RunLayout(NIGHT).summary)
    with caplog.at_level(logging.WARNING):
        assert artifacts(api, reported(experiment)) == []
    assert f"The report of {NIGHT} was not written: ValueError" in caplog.text
