"""One worker as its session sees it: it does a job, or dies."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TypeVar

from agentfly_core.inference.endpoints.budget import Budget, BudgetSpent
from agentfly_core.pipeline.workers.connection import Connection, Death, Disconnected
from agentfly_core.pipeline.workers.job import Blame, Job
from agentfly_core.pipeline.workers.messages import (
    ERRORS,
    Allowed,
    Asked,
    Assigned,
    Cancel,
    Cancelled,
    End,
    Failed,
    FromWorker,
    GivenUp,
    JobDone,
    Logged,
    Ready,
    Reported,
    Setup,
    Spent,
)
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.formats.text import is_first
from agentfly_core.system.progress import report
from agentfly_core.system.service import Service

A = TypeVar("A", bound=FromWorker)
END_SECONDS = 30.0


class WorkerDied(Exception):
    """A worker ended before its job did."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.how)
        self.death = death


class WorkerProcess:
    """A supervised worker: `WorkerProcess(service, Setup(...), budgets).do(job, blame, metrics)`.

    It is restarted after its death and does one job at a time.
    """

    def __init__(self, service: Service, setup: Setup, budgets: Mapping[str, Budget]) -> None:
        self._service, self._setup, self._budgets = service, setup, budgets
        self._connection: Connection | None = None
        self._turn, self._ended = threading.Lock(), False

    def do(self, job: Job, blame: Blame, metrics: Mapping[str, float]) -> Pointer:
        """Do a job; raises the errors of the job, WorkerDied, and CancelledError after `end`."""
        with self._turn:
            if self._ended:
                raise CancelledError
            if self._connection and self._connection.is_gone:  # no death of this job
                self._connection = None
            here = self._connection = self._connection or self._connected()
            try:
                here.send(Assigned(job, blame.failed, tuple(blame.suspects), metrics))
                done = self._answer(here, JobDone)
            except Disconnected:
                self._connection = None
                with here:
                    raise WorkerDied(here.death()) from None
            except BaseException as error:  # it is raised again
                if not isinstance(error, Exception):  # Ctrl-C, or a cancelled flow run
                    self._cancel(here)
                raise
            if done.worn:
                self._end()
            return done.artifact

    def end(self) -> None:
        """Have it close its environments and end, and cancel the job of another thread.

        Raises RuntimeError for environments in use.
        """
        self._ended = True
        if (here := self._connection) and self._turn.locked():
            with suppress(Disconnected):
                here.send(Cancel())
            if not self._turn.acquire(timeout=END_SECONDS):
                return here.kill()
            self._turn.release()
        self._end()

    def _end(self) -> None:
        if here := self._connection:
            self._connection = None
            with here, suppress(Disconnected):
                here.send(End())
                self._wait_for_end(here)

    def _connected(self) -> Connection:
        made: list[Connection] = []

        def connect() -> bool:
            with suppress(OSError):
                made.append(Connection(self._service))
            return bool(made)

        self._service.wait(connect)
        here = made[0]
        try:
            here.send(self._setup)
            here.watch(self._answer(here, Ready).pid)
        except Disconnected:
            raise WorkerDied(here.death()) from None
        return here

    def _answer(self, here: Connection, wanted: type[A]) -> A:
        """The next message of a kind; others are handled. Kills a worker whose threads do not run.

        Raises Disconnected for a dead worker.
        """
        while not isinstance(message := here.received(), wanted):
            match message:
                case Reported(progress):
                    report(progress)
                case Logged():
                    _log(message)
                case Asked(name):
                    here.send(self._allowed(name))
                case Spent(name, tokens):
                    self._budgets[name].spend(tokens)
                case Failed(error, text):
                    raise _error(error, text)
                case Cancelled():
                    raise CancelledError
                case GivenUp(how, call):
                    here.blame(how, *call)
                case None:
                    here.kill_if_silent()
        return message

    def _allowed(self, name: str) -> Allowed:
        try:
            self._budgets[name].take()
        except BudgetSpent as spent:
            return Allowed(str(spent))
        return Allowed()

    def _cancel(self, here: Connection) -> None:
        """Have it drop its job, or end it after END_SECONDS."""
        with suppress(Disconnected):
            here.send(Cancel())
            self._wait_for_end(here)

    def _wait_for_end(self, here: Connection) -> None:
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            match here.received():
                case Cancelled() | JobDone():
                    return
                case Failed(error, text):
                    raise _error(error, text)
                case Logged() as logged:
                    _log(logged)
        here.kill()


def _error(name: str, text: str) -> Exception:
    """An error of the worker; other kinds have their traceback as text."""
    kind = ERRORS.get(name, RuntimeError)
    return kind.__new__(kind, text)


def _log(logged: Logged) -> None:
    """Log a record of the worker; a warning with `once` only the first time."""
    if not logged.once or is_first(logged.once):
        logging.getLogger(logged.logger).log(logged.level, "%s", logged.text)
