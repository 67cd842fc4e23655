"""A night continues if its messages fail."""

import prefect.events
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from agentfly_core.reports.nights.night_ledger import NightEntry
from flows.nights.events import emit

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
    assert f"Prefect did not get the event 'given_up' of {NIGHT}." in caplog.text


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
