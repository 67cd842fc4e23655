"""Progress reports, which working code sends to listeners that display them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a stage: `Progress("score", 3, 128, 128, "reward 0.610, success 55.5 %")`; `note`
    is shown beside it.
    """

    stage: str
    step: int
    done: int
    total: int
    note: str = ""


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
