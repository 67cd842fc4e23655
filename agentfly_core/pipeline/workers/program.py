"""The program of a worker process. It plays the jobs of a session (a running command) one at a
time.

Calls of user code, such as tools and rewards, are recorded in shared memory. The session reads this
memory if this process dies or does not answer. SIGINT is ignored, and SIGUSR1 prints the stacks of
all threads. The module `process` contains the code of the session.
"""

import faulthandler
import gc
import logging
import math
import mmap
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from agentfly_core.authoring import call_table
from agentfly_core.authoring.event_loop import Interrupted, LoopHeld, forget_interrupt, interrupt
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.task import Task, import_tasks
from agentfly_core.experiment.user_code import code_of
from agentfly_core.inference.endpoints.budget import Budget, BudgetSpent
from agentfly_core.pipeline.services import local_player
from agentfly_core.pipeline.workers.local import LocalPlayer
from agentfly_core.pipeline.workers.messages import (
    ERRORS,
    Allowed,
    Asked,
    Assigned,
    Cancel,
    Failed,
    FromWorker,
    GivenUp,
    JobDone,
    Logged,
    Setup,
    Spent,
    ToWorker,
    decoded,
    encoded,
)
from agentfly_core.pipeline.workers.samplers import Samplers, endpoint_of, tokenizer_like
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.lease import guard
from agentfly_core.store.store import Store
from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.text import fault, guard_logs
from agentfly_core.system.guarded import Lines
from agentfly_core.system.progress import listening

BEAT = 0.5
HELD_EXIT = 3


def main(descriptor: int, calls: int) -> None:
    """Play jobs for the main process.

    - `descriptor`: the file descriptor of the socket to the main process
    - `calls`: the file descriptor of the shared memory in which calls of user code are recorded
    """
    # Ctrl-C in a terminal is also sent to workers, but the session decides which work is cancelled
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    call_table.renew(mmap.mmap(calls, call_table.SIZE))
    os.close(calls)
    threading.Thread(target=_beat, name="heartbeat", daemon=True).start()
    session = _Session(socket.socket(fileno=descriptor))
    guard_logs()
    logging.getLogger().addHandler(session)
    logging.getLogger().setLevel(logging.INFO)
    with listening(session.send):
        _served(session)


class _Session(logging.Handler):
    """The connection to the main process. It is also the log handler that sends log records.

    A thread reads the messages of the main process. After the message `Cancel`, the thread
    interrupts the job that is being played.
    """

    def __init__(self, line: socket.socket) -> None:
        super().__init__()
        # otherwise programs that tools start would keep the connection open after the end of this
        # process
        line.set_inheritable(False)
        self._lines = Lines(line)
        self.messages, self._allowed = queue.Queue[ToWorker](), queue.Queue[Allowed]()
        threading.Thread(target=self._read, name="session", daemon=True).start()

    def send(self, message: FromWorker) -> None:
        """Send a message to the main process. Any thread may call this method."""
        with suppress(OSError):  # the session has ended, and this process will end, too
            self._lines.send(encoded(message))

    def allowed(self, service: str) -> Allowed:
        """Ask the main process to allow a request to a chat service (external model API).

        The method blocks until the main process answers, which takes little time.
        """
        self.send(Asked(service))
        return self._allowed.get()

    def emit(self, record: logging.LogRecord) -> None:
        trace = f"\n{record.exc_text}" if record.exc_text else ""
        text, once = f"{record.getMessage()}{trace}", getattr(record, "once", "")
        self.send(Logged(record.name, record.levelno, text, once))

    def _read(self) -> None:
        with suppress(OSError, EOFError):  # the session has ended
            while True:
                match message := decoded(self._lines.receive(math.inf)):
                    case Cancel():
                        interrupt()
                    case Allowed():
                        self._allowed.put(message)
                    case _:
                        assert isinstance(message, ToWorker)
                        # now, because a later Cancel concerns this job, and an earlier one
                        # concerned the previous job
                        forget_interrupt()
                        self.messages.put(message)


def _served(session: _Session) -> None:
    """Play jobs until the main process sends `End`.

    Errors in the setup, and errors while environments are closed, are sent to the main process. The
    main process then raises them.
    """
    setup = session.messages.get()
    assert isinstance(setup, Setup)
    try:
        with _player(setup, session) as player:
            # With Python's defaults, garbage collections take half of the time of scripted
            # episodes. Nearly all objects in older generations belong to episodes that are still
            # being played.
            gc.freeze()
            gc.set_threshold(20_000, 50)
            while isinstance(message := session.messages.get(), Assigned):
                _do(message, player, setup.sampler, session)
    except LoopHeld as held:
        faulthandler.dump_traceback()
        session.send(GivenUp(held.how, (held.call,) if held.call else ()))
        # a normal exit would wait for the thread of the blocked event loop
        os._exit(HELD_EXIT)
    except Exception as error:  # raised again in the session
        session.send(_failed(error))


def _do(message: Assigned, player: LocalPlayer, sampler: str, session: _Session) -> None:
    """Play a job. Send the published artifact or the error to the main process."""
    try:
        metrics = message.metrics if sampler else player.load(message.job)
        artifact = player.play(message.job, message.blame, metrics)
        # a sampler in this process must release the GPU memory that the learner needs
        if not sampler:
            player.rest()
        session.send(JobDone(Pointer(artifact.uri, artifact.digest), _worn()))
    except LoopHeld:
        raise
    except Interrupted:
        session.send(Failed("CancelledError", "", _worn()))
    except Exception as error:  # raised again in the session
        session.send(_failed(error))


def _failed(error: Exception) -> Failed:
    for kind in type(error).__mro__:
        if kind.__name__ in ERRORS:
            return Failed(kind.__name__, str(error), _worn())
    return Failed("", f"{tracebacks.trace(error)}\n{fault(error)}", _worn())


def _worn() -> bool:
    return bool(call_table.table.given_up)


@contextmanager
def _player(setup: Setup, session: _Session) -> Iterator[LocalPlayer]:
    """Start the LocalPlayer, which plays the jobs of the session.

    Raises ValueError if an author's files were edited after the main process had read them.
    """
    os.chdir(setup.folder)
    sys.path[:] = setup.path
    settings, site = Settings.model_validate(setup.settings), Site.model_validate(setup.site)
    store = Store.at(setup.store, Path(setup.cache))
    if store.remote and setup.claim:
        guard(store.remote, setup.claim)
    tasks = import_tasks(settings)
    _require_same_code(setup, code_of(settings, tasks).get("rollout", {}))
    shares = {name: _share(task, site.workers) for name, task in tasks.items()}
    # a share of the limit, because all workers use the same server
    requests = {"concurrency": max(1, site.concurrency // site.workers)}
    experiment = Experiment.of(
        setup.name, settings, {}, site.model_copy(update=requests), store, setup.pinned, shares
    )
    samplers = Samplers(experiment, endpoint_of(store, setup.model))
    for name, chat in samplers.chats.items():
        chat.budget = _SessionBudget(name, session)
    tokenizer = tokenizer_like(setup.tokenizer, store.open(setup.model))
    with local_player(samplers, tokenizer, setup.sampler) as player:
        yield player


def _share(task: Task, workers: int) -> Task:
    """Return the task with its limits on concurrent environments divided by the number `workers`.

    All workers get the same limits, because results must not depend on the worker that plays a
    batch.
    """
    limits = {
        kind: replace(limit, limit=limit.limit // workers) for kind, limit in task.limits.items()
    }
    return replace(task, limits=limits)


def _require_same_code(setup: Setup, code: Mapping[str, str]) -> None:
    """Raise ValueError if an author's files were edited after the main process had read them."""
    if edited := [name for name, digest in setup.code.items() if code.get(name) != digest]:
        raise ValueError(
            f"Files were edited while the command was running: {', '.join(edited)}. Undo the "
            "edits, or start the command again."
        )


class _SessionBudget(Budget):
    """The budget of requests and tokens for a chat service (external model API).

    The main process counts the requests and tokens of all workers, and refuses requests above
    the budget.
    """

    def __init__(self, name: str, session: _Session) -> None:
        super().__init__(name, sys.maxsize, sys.maxsize)
        self._service, self._session = name, session

    def take(self) -> None:
        """Ask the main process to allow one more request. The main process counts the request.

        Raises BudgetSpent if the budget of the chat service is spent.
        """
        if refusal := self._session.allowed(self._service).refusal:
            raise BudgetSpent(refusal)

    def spend(self, tokens: int) -> None:
        """Send the number of tokens that a request used. The main process counts them."""
        self._session.send(Spent(self._service, tokens))


def _beat() -> None:
    while True:
        call_table.table.beat()
        time.sleep(BEAT)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
