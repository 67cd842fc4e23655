"""Fixtures for tests of blocking code."""

import threading
from collections.abc import Iterator

import pytest

from agentfly_core.authoring import time_limits
from tests.support.rooms import Room


@pytest.fixture
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that does not listen is given up after 0.05 s; no environment was made yet."""
    monkeypatch.setattr(time_limits, "GRACE", 0.05)
    Room.made.clear()


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """An event that blocking code waits for; it is set at the end."""
    event = threading.Event()
    yield event
    event.set()
