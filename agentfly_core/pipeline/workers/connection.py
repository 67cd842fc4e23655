"""The connection to a worker, and the memory in which it wrote down its calls."""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from types import TracebackType

from agentfly_core.authoring import call_table
from agentfly_core.authoring.call_table import CallRecord
from agentfly_core.authoring.event_loop import LONGEST
from agentfly_core.pipeline.workers.messages import (
    FROM_WORKER,
    FromWorker,
    MessageLine,
    ToWorker,
    table_of,
)
from agentfly_core.system.service import Service

LOOK = 1.0
MARGIN = 5.0
"""Seconds that a silent worker has beyond the limits of its calls."""
STACKS_SECONDS = 0.5
"""Seconds that it has to write its stacks into its log."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended: `Death("ended its process: SIGSEGV", True, [CallRecord(...)], [...])`.

    One of the `running` calls may have caused it; others of `calls` waited. After SIGKILL it is not
    `certain`, because that signal may come from outside.
    """

    how: str
    certain: bool
    running: Sequence[CallRecord]
    calls: Sequence[CallRecord]

    @property
    def suspects(self) -> list[str]:
        """The ids of the episodes with running calls."""
        return [*dict.fromkeys(call.episode for call in self.calls if call.episode)]

    def culprit(self, alone: Sequence[str]) -> CallRecord | None:
        """The call that caused it, if only one episode's can have; `alone` are played alone."""
        candidates = self.running or self.calls
        episodes = {call.episode for call in candidates}
        if len(episodes) != 1 or "" in episodes:
            return None
        if not self.certain and episodes.isdisjoint(alone):
            return None
        # the call of a tool begins within that of its agent
        return max(candidates, key=attrgetter("since"))


class Disconnected(Exception):
    """The worker is gone."""


class Connection:
    """A connection to the worker of a service, as a block; raises OSError if none listens."""

    def __init__(self, service: Service) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(service.address)
        self._socket.settimeout(LOOK)
        self._line = MessageLine(self._socket)
        self._service, self._starts = service, service.starts
        self._pid, self._table = 0, mmap.mmap(-1, call_table.ROWS * call_table.ROW)
        self._how, self._blamed = "", list[CallRecord]()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def watch(self, pid: int) -> None:
        """Look at the calls of the worker with this process id from now on."""
        self._pid = pid
        with table_of(self._service, pid).open("rb") as file:
            self._table = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @property
    def is_gone(self) -> bool:
        """Whether a worker without a job has died."""
        readable = select.select([self._socket], [], [], 0)[0]
        with suppress(ConnectionResetError):
            return bool(readable) and not self._socket.recv(1, socket.MSG_PEEK)
        return True

    def send(self, message: ToWorker) -> None:
        """Send a message; raises Disconnected."""
        try:
            self._line.send(message)
        except OSError as error:
            raise Disconnected from error

    def received(self) -> FromWorker | None:
        """The next message, or None after LOOK seconds; raises Disconnected."""
        try:
            return FROM_WORKER.validate_json(self._line.receive())
        except TimeoutError:
            return None
        except (OSError, EOFError) as error:
            raise Disconnected from error

    def kill(self) -> None:
        """End the worker; its supervisor ends all its children."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def blame(self, how: str, *calls: CallRecord) -> None:
        """Say why the worker ends, and by which calls."""
        self._how, self._blamed = how, [*calls]

    def kill_if_silent(self) -> None:
        """Kill a worker if its threads stood still for longer than the limits of its calls."""
        if not self._pid:
            return
        running = call_table.running(self._table)
        longest = max((call.longest for call in running), default=LONGEST)
        if time.monotonic() - call_table.heartbeat(self._table) > longest + MARGIN:
            self.blame(f"kept its process from running for more than {longest:g} s", *running)
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGUSR1)
            time.sleep(STACKS_SECONDS)
            self.kill()

    def death(self) -> Death:
        """How the worker died."""
        running, calls = call_table.running(self._table), call_table.calls(self._table)
        if self._how:
            return Death(self._how, True, self._blamed, calls)
        code = self._service.exit_code(self._starts)
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Death(f"ended its process: {name}", code != -signal.SIGKILL, running, calls)
