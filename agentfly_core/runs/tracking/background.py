"""Call MLflow in a separate thread, because stages must not wait for MLflow."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from agentfly_core.runs.tracking.mlflow_client import REFUSALS, MlflowStore
from agentfly_core.system.formats.text import fault, redact

LOCAL, SERVER, OUTAGE = 1800.0, 20.0, 0.03
"""The longest time that the end of a run waits for MLflow:

- LOCAL: for a database without a server, in seconds
- SERVER: for a server, in seconds
- OUTAGE: for a server, if the last call failed. It is a share of the run's duration: 0.03 means
  that after 300 s of the run, the limit is 9 s. The limit is at least 1 s and at most SERVER.
"""


@dataclass
class Background:
    """Calls the function `send` in a daemon thread. `send` sends the run's missing data to MLflow.

    `error` is the error of the last call, or None if the call succeeded. `command` is the command
    with which the user can send the data later.
    """

    place: MlflowStore
    send: Callable[[], None]
    command: str
    error: Exception | None = None
    _thread: threading.Thread = field(default_factory=threading.Thread)
    _began: float = field(default_factory=monotonic)

    def start(self) -> None:
        """Call `send` in a new thread, unless the thread of an earlier call is still running."""
        if not self._thread.is_alive():
            # a daemon, because a server that hangs must not keep the process from ending
            self._thread = threading.Thread(target=self._call, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Send data for the last time. Wait until this attempt ends or a time limit passes.

        The constants LOCAL, SERVER and OUTAGE define the limit. If MLflow still lacks data, the
        reason is printed. The command that sends the data is printed too, if a second attempt can
        succeed.
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
                print(f"To send the missing data: {self.command}.")

    def _call(self) -> None:
        try:
            self.send()
            self.error = None
        except Exception as error:  # MLflow and its client raise errors of many types
            self.error = error


def _reason(error: BaseException) -> str:
    """Describe the original error in a chain of errors, in one line."""
    while cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        error = cause
    return fault(error).splitlines()[0][:200].rstrip(".")
