"""A night continues whatever becomes of the messages about it."""

import prefect.events
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.nights.events import tell


@pytest.fixture(autouse=True)
def served():
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        yield


def test_what_prefect_refuses_is_logged_and_nothing_else(monkeypatch, caplog):
    def refuse(**event):
        raise ConnectionError("no server")

    monkeypatch.setattr(prefect.events, "emit_event", refuse)
    tell("given_up", "nightly-2026-11-21", "quickstart", "It was tried 3 times.")
    assert (
        "Prefect did not get the event that the night nightly-2026-11-21 is 'given_up'."
        in caplog.text
    )


def test_a_secret_in_a_message_stays_here(monkeypatch):
    told = []
    monkeypatch.setattr(prefect.events, "emit_event", lambda **event: told.append(event))
    monkeypatch.setenv("SEARCH_API_KEY", "s3cr3t-value")
    tell("crashed", "nightly-2026-11-21", "quickstart", "No s3cr3t-value fits.", attempts=2)
    (event,) = told
    assert event["event"] == "agentfly.night.crashed"
    assert event["resource"]["prefect.resource.id"] == "agentfly.night.nightly-2026-11-21"
    assert event["payload"]["message"] == "No [SEARCH_API_KEY] fits."
    assert event["payload"]["attempts"] == 2


def test_without_a_prefect_api_no_server_is_started_for_a_message(monkeypatch):
    monkeypatch.setattr(prefect.events, "emit_event", lambda **event: pytest.fail("it was sent"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        tell("kept", "nightly-2026-11-21", "quickstart", "The champion stays.")
