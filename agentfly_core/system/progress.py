"""Progress reports. Stages send reports, and listeners display them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a stage: `Progress("score", 3, 128, 128, "reward 0.610, success 55.5 %")`.

    In the training step `step`, `done` of `total` episodes of the stage are finished. An update
    counts optimizer steps instead of episodes. `note` is a text shown next to these numbers.
    """

    stage: str
    step: int
    done: int
    total: int
    note: str = ""


Listener = Callable[[Progress], None]
"""A function that receives progress reports. It must not raise errors, and must return at once."""
_listeners: list[Listener] = []


def report(progress: Progress) -> None:
    """Send a report to every listener."""
    for listener in _listeners:
        listener(progress)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the progress reports of all threads to `listener` during the `with` block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
