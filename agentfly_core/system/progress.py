"""Progress reports, from the code that works to the listeners that display it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a stage: `Progress("rollout", step=3, done=40, total=128, reward=0.61)`."""

    stage: str
    step: int
    done: int
    total: int
    reward: float | None = None


Listener = Callable[[Progress], None]
"""A receiver of progress reports; must not raise, and must return at once."""
_listeners: list[Listener] = []


def report(progress: Progress) -> None:
    """Send a report to every listener."""
    for listener in _listeners:
        listener(progress)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send reports made inside the block, from any thread, to `listener`."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
