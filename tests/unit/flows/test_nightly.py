"""A URL is called after each night, and no log or file contains it."""

import logging
import socket
import time
from contextlib import suppress

import pytest

from flows import nightly
from flows.nightly import pinging
from tests.support.servers import receiver
from tests.support.waiting import LIMIT

SECRET = "/0c5d-very-secret-91e1"


@pytest.fixture(autouse=True)
def every_log_line(caplog):
    caplog.set_level(logging.DEBUG)


def ping(variable: str, success: bool) -> None:
    """End a night."""
    with suppress(KeyError), pinging(variable):
        if not success:
            raise KeyError


def logged(caplog):
    """Return the records of this module; other threads may log at the same time."""
    return [record for record in caplog.records if record.name == nightly.logger.name]


def test_a_good_night_calls_the_url_and_a_bad_one_its_fail_path(monkeypatch, caplog):
    with receiver() as service:
        for url in (f"{service.url}{SECRET}", f"{service.url}{SECRET}/?create=1"):
            monkeypatch.setenv("MY_PING", url)
            ping("MY_PING", success=True)
            ping("MY_PING", success=False)
    assert service.calls == [
        SECRET,
        f"{SECRET}/fail",
        f"{SECRET}/?create=1",
        f"{SECRET}/fail?create=1",
    ]
    assert logged(caplog) == []
    assert "secret" not in caplog.text


def test_a_failure_is_logged_without_the_url(monkeypatch, caplog):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
        with receiver(status=404) as service:
            wrong = (service.url, nobody, "http://127.0.0.1:x", "file://", "gopher:/", "http:// a")
            for url in wrong:
                monkeypatch.setenv("MY_PING", url + SECRET)
                ping("MY_PING", success=True)
    assert len(logged(caplog)) == len(wrong)
    assert (
        "The URL in the environment variable MY_PING could not be called: HTTPError." in caplog.text
    )
    assert (
        "The URL in the environment variable MY_PING could not be called: URLError." in caplog.text
    )
    assert "secret" not in caplog.text


def test_a_service_that_never_answers_does_not_delay_the_night(monkeypatch, caplog):
    monkeypatch.setattr(nightly, "LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MY_PING", f"http://127.0.0.1:{silent.getsockname()[1]}{SECRET}")
        began = time.monotonic()
        ping("MY_PING", success=True)
    assert time.monotonic() - began < LIMIT
    assert "MY_PING" in caplog.text and "secret" not in caplog.text


def test_without_a_name_or_value_no_url_is_called(monkeypatch, caplog):
    ping("", success=True)
    assert logged(caplog) == []
    monkeypatch.delenv("MY_PING", raising=False)
    ping("MY_PING", success=True)
    assert (
        "The URL in the environment variable MY_PING could not be called: KeyError." in caplog.text
    )
