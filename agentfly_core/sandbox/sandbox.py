"""The sandbox of this machine: a backend, with spare executions that wait for requests."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from agentfly_core.sandbox.backends import Backend
from agentfly_core.sandbox.cgroups import Cgroup, Cgroups
from agentfly_core.sandbox.guest import protocol
from agentfly_core.sandbox.guest.protocol import (
    ExecRequest,
    ExecResult,
    Limits,
    Status,
    judged,
    unavailable,
)

AT_ONCE, SPARES = 32, 2


@dataclass(frozen=True)
class Sandbox:
    """A backend, and why those before it are not used:
    `{"forkserver": "unshare: Operation not permitted"}`.

    Where the backend is warm, two executions are kept ready: making namespaces and entering control
    groups takes the kernel longer than running a short program. Usable from any thread and event
    loop.
    """

    backend: Backend
    cgroups: Cgroups
    refused: Mapping[str, str] = field(default_factory=dict)
    _spares: deque[ReadyExecution] = field(default_factory=deque)
    _places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=WeakKeyDictionary
    )
    _owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        atexit.register(self.close)

    async def execute(self, request: ExecRequest) -> ExecResult:
        """Run a request to its end, once fewer than 32 of this event loop run; a cancelled one is
        ended.
        """
        places = self._places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
        try:
            async with places, self.begin(request.limits, request.kept) as execution:
                return await execution.run(request)
        except OSError as error:
            return unavailable(str(error), self.backend.name)

    @asynccontextmanager
    async def begin(self, limits: Limits, kept: bool) -> AsyncIterator[Execution]:
        """An execution for one request, or with `kept` for several, ended with the block; raises
        OSError.
        """
        ready = (None if kept else self._spared()) or await self._ready(kept)
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ready.connection)
            try:
                ready.cgroup.limit(limits)
                yield Execution(reader, writer, ready, self.backend)
            finally:
                writer.transport.abort()  # which ends what still runs
                with suppress(OSError):
                    await writer.wait_closed()
        finally:
            self.cgroups.end(ready.cgroup)
            await self._prepare()

    def close(self) -> None:
        """End what runs, in the process that started it; the next request starts it again."""
        if self._owner != os.getpid():
            return
        while spare := self._spared():
            self._drop(spare)
        self.backend.close()
        self.cgroups.close()

    async def _prepare(self) -> None:
        with suppress(OSError):  # the next request will say so
            while self._warm and len(self._spares) < SPARES and self.backend.alive():
                spare = await self._ready(kept=False)
                if len(self._spares) < SPARES:
                    self._spares.append(spare)
                else:  # others made enough of them meanwhile
                    self._drop(spare)

    async def _ready(self, kept: bool) -> ReadyExecution:
        cgroup = self.cgroups.fresh()
        try:
            return ReadyExecution(await self.backend.connect(cgroup.entries, kept), cgroup)
        except BaseException:  # cancelled too: whatever it is passes on, but the groups are ended
            self.cgroups.end(cgroup)
            raise

    @property
    def _warm(self) -> bool:
        """Whether spares are kept; a fork of this process finds its parent's, and must leave them
        alone.
        """
        return self.backend.warm and self._owner == os.getpid()

    def _spared(self) -> ReadyExecution | None:
        while self._warm and self._spares:
            with suppress(IndexError):  # another thread was faster
                spare = self._spares.popleft()
                if self.backend.alive() and spare.waits:
                    return spare
                self._drop(spare)
        return None

    def _drop(self, spare: ReadyExecution) -> None:
        spare.connection.close()
        self.cgroups.end(spare.cgroup)


GRACE = 10.0
SECONDS_TO_NOTICE = 0.2  # until the end of a server that took its executions along is known


@dataclass(frozen=True, slots=True)
class ReadyExecution:
    """An execution that waits for its request, its namespaces made, its control groups entered."""

    connection: socket.socket
    cgroup: Cgroup

    @property
    def waits(self) -> bool:
        """Whether it still waits: its init process may have ended, silently, with its server."""
        try:
            self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False


@dataclass
class Execution:
    """A connection to an init process and its requests' results; `alive`: it can take another."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ready: ReadyExecution
    backend: Backend
    alive: bool = True
    started: bool = False
    oom_kills: int = 0

    async def run(self, request: ExecRequest) -> ExecResult:
        """The outcome of a request; a broken or late answer is one too, and the code's own doing
        once it has started.
        """
        self.alive, limits = False, request.limits
        self.writer.write(request.packed())
        try:
            while True:
                async with asyncio.timeout(limits.wall + GRACE if self.started else None):
                    most = limits.captured + limits.disk
                    report, blobs = await protocol.receive(self.reader, most)
                if "started" not in report:
                    break
                self.started = True
        except (EOFError, ConnectionError):
            await asyncio.sleep(SECONDS_TO_NOTICE)
            if not self.started or not self.backend.alive():
                return unavailable("the execution's init process ended", self.backend.name)
            return self._lost(Status.KILLED)
        except TimeoutError:
            return self._lost(Status.TIMEOUT)
        if why := report.get("unavailable"):
            return (
                self._lost(Status.KILLED)
                if self.started
                else unavailable(str(why), self.backend.name)
            )
        self.alive = bool(report["alive"])
        kills = self.ready.cgroup.oom_kills()
        new, self.oom_kills = kills - self.oom_kills, kills
        return judged(report, blobs, new, self.backend.name)

    def _lost(self, status: Status) -> ExecResult:
        return ExecResult(status, None, "", "", False, 0.0, 0, self.backend.name)
