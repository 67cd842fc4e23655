"""The sandbox of this machine. It runs code in executions (processes that a backend starts)."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from agentfly_core.sandbox.backends import Backend
from agentfly_core.sandbox.cgroups import Cgroup, Cgroups
from agentfly_core.sandbox.guest import protocol

AT_ONCE, SPARES = 32, 2


@dataclass(frozen=True)
class Sandbox:
    """A sandbox with one backend. Any thread and any event loop can use it.

    `refused` contains the reasons why other backends are not used, such as
    `{"forkserver": "unshare: Operation not permitted"}`. If the backend is a fork server, two
    unused executions (spares) are kept ready, because creating namespaces takes longer than a short
    program.
    """

    backend: Backend
    cgroups: Cgroups
    refused: Mapping[str, str] = field(default_factory=dict)
    _spares: deque[Waiting] = field(default_factory=deque)
    _places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=WeakKeyDictionary
    )
    _owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        atexit.register(self.close)

    async def execute(self, request: protocol.ExecRequest) -> protocol.ExecResult:
        """Run a request in a new execution, which ends after the request.

        If this call is cancelled, the execution also ends. On an event loop, at most 32 requests
        run at once. Further requests wait.
        """
        places = self._places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
        try:
            begin = self.begin(request.limits, request.modules)
            async with places, begin as execution:
                return await execution.run(request)
        except OSError as error:
            return protocol.unavailable(str(error), self.backend.name)

    @asynccontextmanager
    async def begin(
        self, limits: protocol.Limits, modules: Sequence[str] = ()
    ) -> AsyncIterator[Execution]:
        """Yield the connection to an execution, i.e. to processes that can run code.

        The execution ends at the end of the `async with` block. The execution runs one request. If
        the request sets `ExecRequest.kept`, further requests can follow. Raises OSError if the
        execution cannot be started.
        """
        spare = None if modules else self._spared()
        connection, cgroup = spare or await self._ready(modules)
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection)
            try:
                cgroup.limit(limits)
                yield Execution(reader, writer, cgroup, self.backend)
            finally:
                writer.transport.abort()  # this ends the execution
                with suppress(OSError):
                    await writer.wait_closed()
        finally:
            self.cgroups.end(cgroup)
            await self._prepare()

    def close(self) -> None:
        """End all executions and the backend. A later request starts the backend again.

        In a forked process, do nothing, because the executions and the backend belong to the
        process that created this object.
        """
        if self._owner != os.getpid():
            return
        while spare := self._spared():
            self._drop(spare)
        self.backend.close()
        self.cgroups.close()

    async def _prepare(self) -> None:
        with suppress(OSError):  # the next request raises the error
            while self._warm and len(self._spares) < SPARES and self.backend.alive():
                spare = await self._ready()
                if len(self._spares) < SPARES:
                    self._spares.append(spare)
                else:  # other tasks have made enough spares meanwhile
                    self._drop(spare)

    async def _ready(self, modules: Sequence[str] = ()) -> Waiting:
        cgroup = self.cgroups.fresh()
        try:
            return await self.backend.connect(cgroup.entries, modules), cgroup
        except BaseException:  # also after a cancellation
            self.cgroups.end(cgroup)
            raise

    @property
    def _warm(self) -> bool:
        """Whether two executions (processes for running code) are started before they are needed.

        This is false in a forked process, which must not use the executions of its parent.
        """
        return self.backend.warm and self._owner == os.getpid()

    def _spared(self) -> Waiting | None:
        while self._warm and self._spares:
            with suppress(IndexError):  # another thread took the last spare
                spare = self._spares.popleft()
                if self.backend.alive() and _waits(spare[0]):
                    return spare
                self._drop(spare)
        return None

    def _drop(self, spare: Waiting) -> None:
        connection, cgroup = spare
        connection.close()
        self.cgroups.end(cgroup)


GRACE = 10.0
SECONDS_TO_NOTICE = 0.2  # the time until the death of a server is noticed


Waiting = tuple[socket.socket, Cgroup]
"""An execution (processes that can run code) before its first request: the connection to the init
process, and the control groups of the processes.
"""


def _waits(connection: socket.socket) -> bool:
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


@dataclass
class Execution:
    """The connection to the init process of an execution, i.e. of the processes that run the code.

    `alive` is True as long as the init process accepts requests.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    cgroup: Cgroup
    backend: Backend
    alive: bool = True
    started: bool = False
    oom_kills: int = 0

    async def run(self, request: protocol.ExecRequest) -> protocol.ExecResult:
        """Run a request and return its result.

        If the execution fails before the code starts, or if the server of the sandbox has died, the
        status is UNAVAILABLE. If the execution fails later, the status is KILLED, because the code
        may have caused the failure. If the result is missing 10 seconds after the wall-clock limit,
        the status is TIMEOUT.
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
                return protocol.unavailable("the execution's init process ended", self.backend.name)
            return protocol.ExecResult(protocol.Status.KILLED, backend=self.backend.name)
        except TimeoutError:
            return protocol.ExecResult(protocol.Status.TIMEOUT, backend=self.backend.name)
        if (why := report.get("unavailable")) and not self.started:
            return protocol.unavailable(str(why), self.backend.name)
        if why:
            return protocol.ExecResult(protocol.Status.KILLED, backend=self.backend.name)
        self.alive = bool(report["alive"])
        kills = self.cgroup.oom_kills()
        new, self.oom_kills = kills - self.oom_kills, kills
        return protocol.judged(report, blobs, new, self.backend.name)
