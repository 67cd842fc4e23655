"""Calls to MLflow in a thread of their own. No stage waits for MLflow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import fault, redact
from agentfly_core.tracking.mlflow_client import MlflowStore
from agentfly_core.tracking.mlflow_run import REFUSALS, MlflowRun

LOCAL, SERVER, OUTAGE = 1800.0, 20.0, 1.0
"""Seconds that the end of a run waits for a database without a server, for a server, and for a
server whose last answer was an error.
"""
MlflowCall = Callable[[MlflowRun], None]


class Background:
    """Calls with the MlflowRun that `connect` returns, in a daemon thread.

    `error` is the last call's error, None after a success.
    """

    def __init__(self, place: MlflowStore, connect: Callable[[], MlflowRun]) -> None:
        self.error: Exception | None = None
        self._place, self._connect = place, connect
        self._mlflow: MlflowRun | None = None
        self._thread = threading.Thread()

    def start(self, send: MlflowCall) -> None:
        """Call `send` in the thread, unless the call before is at work."""
        if not self._thread.is_alive():
            self._thread = threading.Thread(target=self._call, args=(send,), daemon=True)
            self._thread.start()

    def finish(self, send: MlflowCall, command: str) -> str:
        """Call `send` at last, within a time limit; return what MLflow lacks, empty for nothing.

        `command` is a phrase that names the command which sends the rest.
        """
        limit = (OUTAGE if self.error else SERVER) if self._place.served else LOCAL
        end = time.monotonic() + limit
        while self._thread.is_alive() and time.monotonic() < end:
            self._thread.join(end - time.monotonic())
        self.start(send)
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            self.error = TimeoutError(f"no answer in {limit:.0f} s")
        return "\n".join(self._missing(command))

    def _call(self, send: MlflowCall) -> None:
        try:
            self._mlflow = self._mlflow or self._connect()
            send(self._mlflow)
            self.error = None
        except Exception as error:  # MLflow and its client raise many types
            self.error = error

    def _missing(self, command: str) -> list[str]:
        store = f"MLflow ({redact(self._place.uri)})"
        refused = self._mlflow.refused if self._mlflow else {}
        lines = [f"{store} refused {name} ({reason})." for name, reason in refused.items()]
        if len(lines) > 3:
            lines[3:] = [f"{store} refused {len(lines) - 3} more."]
        if isinstance(self.error, Damaged | FileNotFoundError):  # a file of the run, not MLflow
            lines.append(f"The run was not sent to {store}: {fault(self.error)}")
        elif self.error:
            lines.append(f"{store} was not reached: {cause(self.error).rstrip('.')}.")
            if getattr(self.error, "error_code", "") not in REFUSALS:
                lines.append(f"Nothing is lost: {command} sends the rest.")
        return lines


def cause(error: BaseException) -> str:
    """The first error of a chain: `ConnectionRefusedError: [Errno 111] Connection refused`."""
    while earlier := error.__cause__ or error.__context__:
        error = earlier
    return fault(error).splitlines()[0][:200]
