"""Call MLflow in a separate thread, because stages must not wait for it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from agentfly_core.runs.tracking.mlflow_client import REFUSALS, MlflowStore
from agentfly_core.system.formats.text import fault, redact

LOCAL, SERVER, OUTAGE = 1800.0, 20.0, 0.03
"""The longest wait at the end of a run:

- LOCAL: seconds for a database without a server
- SERVER: seconds for a server
- OUTAGE: a share of the run's time, for a server whose last answer was an error
"""


@dataclass
class Background:
    """Calls `send`, which sends all missing data to MLflow, in a daemon thread.

    `error` is the error of the last call, None after a success. `command` is the command with which
    the user can send the rest later.
    """

    place: MlflowStore
    send: Callable[[], None]
    command: str
    error: Exception | None = None
    _thread: threading.Thread = field(default_factory=threading.Thread)
    _began: float = field(default_factory=monotonic)

    def start(self) -> None:
        """Send in the thread, unless the previous call is still running."""
        if not self._thread.is_alive():
            # a daemon, because a server that hangs must not keep the process from ending
            self._thread = threading.Thread(target=self._call, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Send for the last time, within a time limit. If data is missing in MLflow, print the
        reason and the command that sends the rest.
        """
        begin, limit = monotonic(), SERVER if self.place.served else LOCAL
        if self.place.served and self.error:
            limit = min(SERVER, max(1.0, OUTAGE * (begin - self._began)))
        if self._thread.is_alive():
            self._thread.join(limit)
        self.start()
        self._thread.join(max(0.0, begin + limit - monotonic()))
        if self._thread.is_alive():
            self.error = TimeoutError(f"no answer in {limit:.0f} s")
        if self.error:
            print(f"MLflow ({redact(self.place.uri)}) lacks data: {_reason(self.error)}.")
            if getattr(self.error, "error_code", "") not in REFUSALS:  # the call would fail again
                print(f"Send the rest with {self.command}.")

    def _call(self) -> None:
        try:
            self.send()
            self.error = None
        except Exception as error:  # MLflow and its client raise errors of many types
            self.error = error


def _reason(error: BaseException) -> str:
    """Return the first line of the original error in a chain of errors."""
    while cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        error = cause
    return fault(error).splitlines()[0][:200].rstrip(".")
