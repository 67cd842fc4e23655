"""A night continues if its messages fail."""

import prefect.deployments
import prefect.events
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from agentfly_core.reports.nights.night_ledger import NightEntry, NightLedger
from flows.nights.events import emit, request_approval
from tests.support.experiments import experiment as experiment_in

NIGHT = "nightly-2026-11-21"


@pytest.fixture(autouse=True)
def served():
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        yield


def test_a_refusal_of_prefect_is_logged(monkeypatch, caplog):
    def refuse(**event):
        raise ConnectionError("no server")

    monkeypatch.setattr(prefect.events, "emit_event", refuse)
    emit("quickstart", NightEntry(4, 0, NIGHT, "given_up", "It was tried 3 times."))
    assert f"The event 'given_up' of {NIGHT} could not be sent to Prefect: " in caplog.text


def test_secrets_are_removed_from_a_message(monkeypatch):
    events = []
    monkeypatch.setattr(prefect.events, "emit_event", lambda **event: events.append(event))
    monkeypatch.setenv("SEARCH_API_KEY", "s3cr3t-value")
    emit("quickstart", NightEntry(4, 0, NIGHT, "given_up", "No s3cr3t-value fits."))
    (event,) = events
    assert event["event"] == "agentfly.night.given_up"
    assert event["resource"]["prefect.resource.id"] == f"agentfly.night.{NIGHT}"
    assert event["payload"]["message"] == "No [SEARCH_API_KEY] fits."


def test_without_a_prefect_api_a_message_starts_no_server(monkeypatch):
    monkeypatch.setattr(prefect.events, "emit_event", lambda **event: pytest.fail("it was sent"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        emit("quickstart", NightEntry(4, 0, NIGHT, "kept", "The champion stays."))


def test_approval_is_requested_by_a_flow_run(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(
        prefect.deployments, "run_deployment", lambda *name, **how: started.append((name, how))
    )
    experiment = experiment_in(tmp_path)
    request_approval(NightLedger(experiment.store, experiment.name), NIGHT, "local")
    ((name, how),) = started
    assert name == ("promote/promote",)
    assert how["parameters"] == {
        "experiment": "tiny",
        "run": NIGHT,
        "site": "local",
        "store": experiment.store.uri,
    }


def test_a_refused_request_is_logged_with_a_remedy(tmp_path, monkeypatch, caplog):
    def refuse(*name, **how):
        raise ConnectionError("no server")

    monkeypatch.setattr(prefect.deployments, "run_deployment", refuse)
    experiment = experiment_in(tmp_path)
    request_approval(NightLedger(experiment.store, experiment.name), NIGHT, "local")
    assert f"Nobody is asked in the Prefect UI to approve the policy of {NIGHT}" in caplog.text
    assert "no server" in caplog.text and f"agentfly promote {NIGHT}" in caplog.text
