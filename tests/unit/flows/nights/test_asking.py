"""Approval is requested for a waiting policy, also after a failed request."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import prefect.client.orchestration
import prefect.deployments
import pytest

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.reports.nights.night_ledger import NightLedger
from flows.nights import asking
from flows.nights.asking import ask_people
from tests.support.experiments import experiment as experiment_in

FIRST, SECOND, THIRD = (f"nightly-2026-11-{day}" for day in (20, 21, 22))


class Forms:
    """A Prefect server with flow runs of `promote`, by parameters. A start raises `refuses`."""

    def __init__(self, refuses: Exception | None = None) -> None:
        self.waiting: list[dict[str, str]] = []
        self.refuses = refuses

    def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        assert name == "promote/promote"
        return SimpleNamespace(id="6e9f5a3c-2d0b-4c8e-9a53-0b8f4f1b7c11")

    def read_flow_runs(self, **filters: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(parameters=parameters) for parameters in self.waiting]

    def start(self, name: str, parameters: dict[str, str], **how: object) -> None:
        if self.refuses:
            raise self.refuses
        self.waiting.append(parameters)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return experiment_in(tmp_path)


@pytest.fixture
def ledger(experiment: Experiment) -> NightLedger:
    return NightLedger(experiment.store, experiment.name)


def connect(monkeypatch: pytest.MonkeyPatch, forms: Forms) -> Forms:
    """Connect the product to these."""
    client = prefect.client.orchestration
    monkeypatch.setattr(client, "get_client", lambda sync_client: nullcontext(forms))
    monkeypatch.setattr(prefect.deployments, "run_deployment", forms.start)
    monkeypatch.setattr(asking, "crash_dead", lambda: [])
    return forms


def test_a_night_requests_each_approval_that_has_no_form(
    experiment: Experiment, ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = connect(monkeypatch, Forms())
    for night in (FIRST, SECOND, THIRD):
        ledger.append(night, "awaits_approval")
    ledger.append(SECOND, "not_approved")
    for _ in range(2):
        ask_people(ledger, experiment.site.name)
    assert [form["run"] for form in forms.waiting] == [FIRST, THIRD]
    assert forms.waiting[1] == {
        "experiment": "tiny",
        "run": THIRD,
        "site": experiment.site.name,
        "store": experiment.store.uri,
    }


def test_a_form_of_another_experiment_does_not_count(
    experiment: Experiment, ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = connect(monkeypatch, Forms())
    ledger.append(FIRST, "awaits_approval")
    ask_people(ledger, experiment.site.name)
    forms.waiting[0]["experiment"] = "shop"
    ask_people(ledger, experiment.site.name)
    assert [form["experiment"] for form in forms.waiting] == ["shop", "tiny"]


def test_a_refusal_of_prefect_is_logged_with_a_remedy(
    experiment: Experiment,
    ledger: NightLedger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connect(monkeypatch, Forms(ConnectionError("no server")))
    ledger.append(FIRST, "awaits_approval")
    ask_people(ledger, experiment.site.name)
    assert "Nobody is asked in the Prefect UI about the policy of nightly-2026-11-20" in caplog.text
    assert "no server" in caplog.text
    assert "agentfly promote nightly-2026-11-20" in caplog.text
