"""Simulated changes of the system clock, and a clock that a test moves."""

import time
from collections.abc import Callable

import psutil
import pytest

from agentfly_core.store.lease import Clock


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the time and the boot time, as reported by the system, later by these seconds."""
    now, boot = time.time, psutil.boot_time()
    monkeypatch.setattr(time, "time", lambda: now() + seconds)
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot + seconds)


class Moved:
    """A clock that sleeping moves; `during` runs in each sleep."""

    def __init__(self, during: Callable[[], object] = lambda: None) -> None:
        self.seconds, self.during = 0.0, during

    @property
    def clock(self) -> Clock:
        """As a lease reads it."""
        return Clock(lambda: self.seconds, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.during()
