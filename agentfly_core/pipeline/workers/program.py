"""The program of a worker: plays the jobs of a session, one at a time.

    python -m agentfly_core.pipeline.workers.program SOCKET

Its calls of authors' functions are in the file `calls-PID` of TMPDIR, which the session reads when
this process dies or does not answer. SIGINT is ignored, and SIGUSR1 writes the stacks of all
threads. `process` is the side of the session.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
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
from agentfly_core.authoring.event_loop import (
    Interrupted,
    LoopHeld,
    forget_interrupt,
    interrupt,
)
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.task import Task, import_tasks
from agentfly_core.experiment.user_code import code_of
from agentfly_core.inference.endpoints.budget import Budget, BudgetSpent
from agentfly_core.pipeline.services import (
    chat_services,
    endpoint_of,
    local_player,
    local_sampler,
    vllm_sampler,
)
from agentfly_core.pipeline.workers.job import Blame
from agentfly_core.pipeline.workers.local import LocalPlayer
from agentfly_core.pipeline.workers.messages import (
    ERRORS,
    TO_WORKER,
    Allowed,
    Asked,
    Assigned,
    Cancel,
    Cancelled,
    Failed,
    GivenUp,
    JobDone,
    Logged,
    MessageLine,
    Ready,
    Reported,
    Setup,
    Spent,
    ToWorker,
    table_of,
)
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.text import fault, guard_logs
from agentfly_core.system.progress import listening
from agentfly_core.system.service import Service

BEAT = 0.5
HELD_EXIT = 3


def main(address: str) -> None:
    """Serve one session."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    call_table.renew(call_table.empty_file(table_of(Service("worker", address), os.getpid())))
    threading.Thread(target=_beat, name="heartbeat", daemon=True).start()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen(1)
        line = MessageLine(door.accept()[0])
    guard_logs()
    logging.getLogger().addHandler(_ToSession(line))
    logging.getLogger().setLevel(logging.INFO)
    with listening(lambda progress: line.send(Reported(progress))):
        _served(line)
    os._exit(0)  # the interpreter would wait for threads that authors' code left behind


class _Inbox:
    """Messages from the session, read in a thread, which interrupts a job that is cancelled."""

    def __init__(self, line: MessageLine) -> None:
        self._line = line
        self.messages, self.allowed = queue.Queue[ToWorker](), queue.Queue[Allowed]()
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError, EOFError):  # the session is gone, and this process with it
            while True:
                match message := TO_WORKER.validate_json(self._line.receive()):
                    case Cancel():
                        interrupt()
                    case Allowed():
                        self.allowed.put(message)
                    case _:
                        forget_interrupt()  # here, since a Cancel comes after its job
                        self.messages.put(message)


def _served(line: MessageLine) -> None:
    """Do jobs until the session ends them. Errors of the setup and of closing environments are
    raised in the session.
    """
    inbox = _Inbox(line)
    setup = inbox.messages.get()
    assert isinstance(setup, Setup)
    try:
        with _player(setup, line, inbox) as player:
            # with Python's defaults collections take half of the time of scripted episodes
            gc.freeze()
            gc.set_threshold(20_000)
            line.send(Ready(os.getpid()))
            while isinstance(message := inbox.messages.get(), Assigned):
                _do(message, player, setup.sampler, line)
    except LoopHeld as held:
        faulthandler.dump_traceback()
        line.send(GivenUp(held.how, (held.call,) if held.call else ()))
        os._exit(HELD_EXIT)
    except Exception as error:  # raised again in the session
        line.send(_failed(error))


def _do(message: Assigned, player: LocalPlayer, sampler: str, line: MessageLine) -> None:
    """Do a job, and send its artifact or its error."""
    blame = Blame(message.failed, message.suspects)
    try:
        metrics = message.metrics if sampler else player.load(message.job)
        artifact = player.play(message.job, blame, metrics)
        if not sampler:
            player.rest()
        worn = bool(call_table.table.given_up)
        line.send(JobDone(Pointer(artifact.uri, artifact.digest), worn))
    except LoopHeld:
        raise
    except Interrupted:
        line.send(Cancelled())
    except Exception as error:  # raised again in the session
        line.send(_failed(error))


def _failed(error: Exception) -> Failed:
    for kind in type(error).__mro__:
        if kind.__name__ in ERRORS:
            return Failed(kind.__name__, str(error))
    return Failed("", f"{tracebacks.trace(error)}\n{fault(error)}")


@contextmanager
def _player(setup: Setup, line: MessageLine, inbox: _Inbox) -> Iterator[LocalPlayer]:
    """Start the player; raises ValueError for edited code."""
    os.chdir(setup.folder)
    sys.path[:] = setup.path
    settings, site = Settings.model_validate(setup.settings), Site.model_validate(setup.site)
    store = Store.at(setup.store, Path(setup.cache))
    tasks = import_tasks(settings)
    _require_same_code(setup, code_of(settings, tasks).get("rollout", {}))
    shares = {name: _share(task, site.workers) for name, task in tasks.items()}
    requests = {"concurrency": max(1, site.concurrency // site.workers)}
    experiment = Experiment.of(
        setup.name, settings, {}, site.model_copy(update=requests), store, setup.pinned, shares
    )
    model, dtype = Pointer(**setup.model), settings.dtype
    endpoint, divided = endpoint_of(store, model), experiment.divided_site
    chats = chat_services(store, divided, settings.agent.speakers, endpoint)
    for name, chat in chats.items():
        chat.budget = _SessionBudget(name, line, inbox)
    sampler = (
        vllm_sampler(Service("vllm", setup.sampler), dtype, experiment.site)
        if setup.sampler
        else local_sampler(store, settings.template, dtype, divided, model, chats)
    )
    with local_player(experiment, model, sampler, chats) as player:
        yield player


def _share(task: Task, workers: int) -> Task:
    """A task with one worker's share of environments.

    Shares are equal: the result must not depend on the worker that plays a shard.
    """
    limits = {
        kind: replace(limit, limit=limit.limit // workers) for kind, limit in task.limits.items()
    }
    return replace(task, limits=limits)


def _require_same_code(setup: Setup, code: Mapping[str, str]) -> None:
    """Raise ValueError for files that were edited since the session began."""
    if edited := [name for name, digest in setup.code.items() if code.get(name) != digest]:
        raise ValueError(
            f"{', '.join(edited)} was edited while the command works. Put it back, or start the "
            "command again."
        )


class _SessionBudget(Budget):
    """The budget of a chat service, which the session counts for all its workers."""

    def __init__(self, name: str, line: MessageLine, inbox: _Inbox) -> None:
        super().__init__(name, sys.maxsize, sys.maxsize)
        self._service, self._line, self._inbox = name, line, inbox

    def take(self) -> None:
        """Ask the session. It answers at once, so the event loop can wait."""
        self._line.send(Asked(self._service))
        if refusal := self._inbox.allowed.get().refusal:
            raise BudgetSpent(refusal)

    def spend(self, tokens: int) -> None:
        """Tell the session."""
        self._line.send(Spent(self._service, tokens))


class _ToSession(logging.Handler):
    """Sends log records to the session."""

    def __init__(self, line: MessageLine) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        trace = f"\n{record.exc_text}" if record.exc_text else ""
        once = getattr(record, "once", "")
        with suppress(OSError):  # the session is gone, and this process with it
            self._line.send(Logged(record.name, record.levelno, f"{text}{trace}", once))


def _beat() -> None:
    while True:
        call_table.table.beat()
        time.sleep(BEAT)


if __name__ == "__main__":
    main(sys.argv[1])
