"""How far a run has come, told by whoever does the work to whoever shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Progress:
    """`Progress("rollout", step=3, done=40, total=128, reward=0.61)`; step 0 lies before the first step."""

    stage: str
    step: int
    done: int
    total: int
    reward: float | None = None


class Listener(Protocol):
    """Somebody who shows progress."""

    def __call__(self, progress: Progress) -> None:
        """Take note; must not raise and must return at once."""
        ...


_listeners: list[Listener] = []


def report(progress: Progress) -> None:
    """Tell every listener."""
    for listener in _listeners:
        listener(progress)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let `listener` hear what is reported inside the block, from any thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
