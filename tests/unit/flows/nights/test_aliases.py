"""MLflow's aliases are a report of the ledger."""

from pathlib import Path

import pytest

from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.runs.run import opened
from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from flows.run_pages import report_aliases
from tests.support.experiments import experiment as experiment_in


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_night_continues_if_the_policy_of_an_alias_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = experiment_in(tmp_path)
    ledger = NightLedger(experiment.store, experiment.name)
    with opened(experiment, "nightly-2026-11-21"):
        ledger.append("nightly-2026-11-21", "finished")
    report_aliases(ledger, experiment.site)
    assert "MLflow's aliases of tiny were not set" in caplog.text
    assert "nightly-2026-11-21" in caplog.text


def test_a_night_continues_without_an_mlflow_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("the state folder is not ours")

    monkeypatch.setattr(MlflowStore, "choose", refuse)
    experiment = experiment_in(tmp_path)
    report_aliases(NightLedger(experiment.store, experiment.name), experiment.site)
    assert "the state folder is not ours" in caplog.text
