"""Run a command with Prefect, and describe its errors."""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.store.lease import refuse_if_held
from agentfly_core.store.lock import Locked, LockLost
from agentfly_core.system.files import disk_fault
from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import fault, words_of
from agentfly_core.system.service import ServiceLost
from flows.local.display import logging_to, show_places
from flows.local.prefect_server import prefect_api
from flows.local.state_dirs import Places, settle
from flows.local.terminal import typed

logger = logging.getLogger(__name__)


class Stopped(RuntimeError):
    """A command ended before its work was finished.

    The message has the cause, and the command with which the user continues.
    """


LONGEST_CAUSE = 20_000
Mistake = ValueError | Locked | LockLost | GateClosed | ServiceLost | OSError | Stopped
"""Errors that are mistakes of the user or of the machine, not defects of AgentFly.

Their messages are shown without a traceback.
"""


def message(error: BaseException) -> str:
    """Return the text that is shown for an error.

    For a mistake of the user, the text has the message of the error, and the failing line of the
    user's code. For all other errors, the text has a traceback without the lines of installed
    packages.
    """
    if not isinstance(error, Mistake):
        return f"An error in code:\n{tracebacks.trace(error)}\n{fault(error, LONGEST_CAUSE)}"
    words = disk_fault(error) or words_of(error).rstrip() or fault(error)
    line = tracebacks.own_line(error)
    return words if line is None or line in words else f"{words}\nThe error was raised at {line}."


@contextmanager
def orchestrated(
    what: str, only_result: bool = False, again: Callable[[], str] = typed.get
) -> Iterator[Places]:
    """Provide a Prefect API during the `with` block, and write logs to a file.

    If no Prefect server answers, a server is started for the duration of the block. `what` is the
    name of the log folder. With `only_result`, all output of the block goes to stderr, because
    stdout is for the result. The error Locked is raised unchanged. Any other error in the block is
    raised as Stopped. The message of Stopped has the cause, the name of the log file and the next
    step. `again` returns the command that continues the work.
    """
    places = settle()
    log = places.state / "logs" / what / "flow.log"
    output = redirect_stdout(sys.stderr if only_result else sys.stdout)
    with output, prefect_api(places) as wait:
        import prefect.main  # noqa: F401 # this takes longest to import, and logs to the terminal

        with logging_to(log):
            try:
                wait()
                yield places
            except Locked:
                raise
            except Exception as error:  # the message for any error has the next step
                raise Stopped(
                    f"{message(error)}\nThe log is {log}. {next_step(error, again)}"
                ) from error


def next_step(error: Exception, again: Callable[[], str]) -> str:
    """Return a sentence that tells the user how to continue after an error.

    `again` returns the command that continues. If the user must correct something first, the
    sentence says that the same command would fail again.
    """
    if isinstance(error, ValueError | GateClosed) and not isinstance(error, Damaged):
        return "The same command fails again until this error is corrected."
    return f"To continue: {again()}"


def trained(request: RunRequest, arguments: Mapping[str, Any]) -> Summary:
    """Train a run with the Prefect flow `train`, and return the run's summary.

    If Prefect fails when the run is already finished, the error is only logged.
    """
    name, store, site = request.name, request.experiment.store, request.experiment.site
    # checked early, because the start of Prefect's server takes seconds
    refuse_if_held(store, RunLayout(name).uri)

    def again() -> str:
        record = record_of(store, name)
        return continuing(store, name, record) if record else typed.get()

    with orchestrated(name, again=again) as places:
        from flows.train import train as flow

        show_places(places, site.mlflow_tracking_uri)
        try:
            summary: Summary = flow(**arguments, run=name)
        except Exception as error:  # an error of Prefect after the end of the run
            if (stored := request.finished()) is None:
                raise
            logger.warning(
                "The run is finished, but Prefect could not be reached: %s", fault(error)
            )
            summary = stored
    return summary
