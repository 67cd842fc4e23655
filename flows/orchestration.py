"""Prefect around a command, and what a person reads when it ends before its work is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.store.lock import Locked, LockLost
from agentfly_core.system.files import disk_fault
from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import fault, words_of
from agentfly_core.system.service import ServiceLost
from flows.local.display import logging_to
from flows.local.prefect_server import prefect_api
from flows.local.state_dirs import Places, settle


class Stopped(RuntimeError):
    """A command ended before its work was done; the message has the cause and the next command."""


LONGEST_CAUSE = 20_000
MISTAKES = (
    ValueError,
    Locked,
    LockLost,
    GateClosed,
    ServiceLost,
    OSError,
    Stopped,
)


def is_mistake(error: BaseException) -> bool:
    """Whether a person reads the error's own words, without a traceback."""
    return issubclass(type(error), MISTAKES)  # isinstance would ask the error


def message(error: BaseException) -> str:
    """What a person reads about an error: a mistake's own words, with the line of their code that
    it came from, if any.

    Anything else is an error in code: its traceback, without the lines of installed packages.
    """
    if not is_mistake(error):
        return (
            f"An error in code ended it:\n{tracebacks.trace(error)}\n{fault(error, LONGEST_CAUSE)}"
        )
    words = disk_fault(error) or words_of(error).rstrip() or fault(error)
    line = tracebacks.own_line(error)
    return words if line is None or line in words else f"{words}\nIt was raised at {line}."


@contextmanager
def orchestrated(what: str, again: Callable[[], str]) -> Iterator[Places]:
    """Prefect for this process: its server starts while the rest is imported, and ends with the
    block.

    Yields the places of its state. What would be logged on the terminal goes to a file. Whatever
    the block raises, but Locked, becomes Stopped with that file, the cause and `next_step`.
    """
    places = settle(Path.cwd())
    log = places.state / "logs" / what / "flow.log"
    with prefect_api(places) as wait:
        import prefect.main  # noqa: F401  # what takes longest to import, and logs to the terminal

        with logging_to(log):
            try:
                wait()
                yield places
            except Locked:
                raise
            except Exception as error:  # whatever ends it, its user reads the next step
                raise Stopped(
                    f"{message(error)}\nThe log is {log}. {next_step(error, again)}"
                ) from error


def next_step(error: Exception, again: Callable[[], str]) -> str:
    """The command that continues, `again`; none for an error that the same command repeats."""
    if isinstance(error, ValueError | GateClosed) and not isinstance(error, Damaged):
        return "The same command fails again until that is corrected."
    return f"To continue: {again()}"
