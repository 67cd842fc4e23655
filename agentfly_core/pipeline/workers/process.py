"""Control a worker process.

Jobs (episodes to play) are sent to the worker, and their results are received. If the worker dies,
WorkerDied is raised.
"""

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path

from agentfly_core.inference.endpoints.budget import Budget, BudgetSpent
from agentfly_core.pipeline.workers.connection import Connection, Death, Disconnected
from agentfly_core.pipeline.workers.job import Blame, Job
from agentfly_core.pipeline.workers.messages import (
    Allowed,
    Asked,
    Assigned,
    Cancel,
    End,
    Failed,
    JobDone,
    Logged,
    Setup,
    Spent,
)
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.formats.text import is_first
from agentfly_core.system.progress import Progress, report
from agentfly_core.system.service import Service, new_address
from agentfly_core.system.supervisor import clean

END_SECONDS = 30.0


class WorkerDied(Exception):
    """A worker process ended before its job had ended."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.how)
        self.death = death


class WorkerProcess:
    """A worker: `WorkerProcess(env, log, Setup(...), budgets).do(job, blame, metrics)`.

    A worker plays one job at a time. If the worker's process dies, a new process replaces it. The
    process is also replaced if abandoned calls still run after a job, for example calls that timed
    out.
    """

    def __init__(
        self, env: Mapping[str, str], log: Path, setup: Setup, budgets: Mapping[str, Budget]
    ) -> None:
        self._env, self._log, self._setup, self._budgets = env, log, setup, budgets
        self._turn, self._ended = threading.Lock(), False
        self._connection: Connection | None = None
        # all workers are started at once, because the imports of each worker take seconds
        self._connected()

    def do(self, job: Job, blame: Blame, metrics: Mapping[str, float]) -> Pointer:
        """Play a job in the worker, and return a pointer to the published result.

        `blame` contains the episodes that killed workers in earlier attempts. `metrics` are metrics
        that were measured before the job. Raises the errors of the job, WorkerDied if the worker
        dies, and CancelledError if `end` was called.
        """
        with self._turn:
            if self._ended:
                raise CancelledError
            here = self._connected()
            # `end` may have been called while the process was starting
            if self._ended:
                self._end()
                raise CancelledError
            try:
                here.send(Assigned(job, blame, metrics))
                return self._result(here)
            except Disconnected:
                self._connection = None
                raise WorkerDied(here.death()) from None
            except BaseException as error:  # raised again
                if not isinstance(error, Exception):  # Ctrl-C, or a cancelled flow run
                    answer = self._stop(here, Cancel())
                    if answer and answer.worn:
                        self._end()
                raise

    def end(self) -> None:
        """Close the worker's environments and end the worker. If another thread plays a job, the
        job is cancelled.

        Raises RuntimeError if an episode still uses an environment after its job has ended.
        """
        self._ended = True
        if self._turn.locked():
            if here := self._connection:
                with suppress(Disconnected):
                    here.send(Cancel())
            if not self._turn.acquire(timeout=END_SECONDS):
                if here := self._connection:
                    here.process.kill()
                return
            self._turn.release()
        self._end()

    def _connected(self) -> Connection:
        """Return the connection to the worker process. If the process is missing, start it."""
        # the next job must not be blamed for this death
        if self._connection and self._connection.process.lines.at_end:
            self._connection.death()
            self._connection = None
        if self._connection is None:
            self._connection = Connection(self._env, self._log)
            with suppress(Disconnected):  # the job reports the error
                self._connection.send(self._setup)
        return self._connection

    def _end(self) -> None:
        if here := self._connection:
            self._connection = None
            answer = self._stop(here, End())
            here.process.end()
            if isinstance(answer, Failed):
                raise answer.error

    def _stop(self, here: Connection, message: Cancel | End) -> JobDone | Failed | None:
        """Send a message that ends the job or the worker, and return the worker's answer.

        A worker that does not answer within END_SECONDS is killed, and the result is None.
        """
        try:
            here.send(message)
            if answer := self._answer(here, END_SECONDS):
                return answer
            here.process.end()
        except Disconnected:
            here.death()
        self._connection = None
        return None

    def _result(self, here: Connection) -> Pointer:
        answer = self._answer(here)
        assert answer is not None
        if answer.worn:
            self._end()
        if isinstance(answer, Failed):
            raise answer.error
        return answer.artifact

    def _answer(self, here: Connection, seconds: float = math.inf) -> JobDone | Failed | None:
        """Handle messages of the worker until its job ends, and return the last message.

        The last message reports the result or the error of the job. If the job does not end within
        `seconds`, the result is None. Raises Disconnected if the worker dies.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            match message := here.received():
                case JobDone() | Failed():
                    return message
                case Progress():
                    report(message)
                case Logged(logger, level, text, once):
                    if not once or is_first(once):
                        logging.getLogger(logger).log(level, "%s", text)
                case Asked(name):
                    here.send(self._allowed(name))
                case Spent(name, tokens):
                    self._budgets[name].spend(tokens)
        return None

    def _allowed(self, name: str) -> Allowed:
        try:
            self._budgets[name].take()
        except BudgetSpent as spent:
            return Allowed(str(spent))
        return Allowed("")


@contextmanager
def worker(
    number: int, setup: Setup, budgets: Mapping[str, Budget], owner: str, logs: Path
) -> Iterator[WorkerProcess]:
    """Start a worker, which runs until the end of the `with` block.

    `number` is part of the name of the worker's log. `owner` is the uid of the run. Raises
    RuntimeError if an environment is still in use when the `with` block ends.
    """
    service, log = Service("worker", str(new_address("worker"))), logs / f"worker-{number}.log"
    process = WorkerProcess(service.claim(log, owner), log, setup, budgets)
    try:
        yield process
    finally:
        process.end()
        clean(service.address)
