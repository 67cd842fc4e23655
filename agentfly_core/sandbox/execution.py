"""One execution as its caller sees it: order, wait, judge. The same for every backend."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol

from agentfly_core.sandbox import wire
from agentfly_core.sandbox.cgroups import Cgroup, Cgroups
from agentfly_core.sandbox.forkserver import Unavailable
from agentfly_core.sandbox.limits import Limits
from agentfly_core.sandbox.result import ExecResult, Status, judged, unavailable

MAIN = "main.py"
PAGE = 4096
GRACE = 10.0
SPARES = 2
SECONDS_TO_NOTICE = 0.2  # until the end of a server that took its executions along is known


class Backend(Protocol):
    """A way of putting code into namespaces of its own."""

    name: str
    warm: bool

    async def connect(self, cgroups: Sequence[int]) -> tuple[socket.socket, int]: ...

    def alive(self) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: `Order(b"print(open('a.txt').read())", {"a.txt": b"hello"}, b"", (), Limits())`."""

    code: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    collect: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in (*self.files, *self.collect):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or name == MAIN:
                raise ValueError(f"Got the file name {name!r}, expected a relative one without '..', not {MAIN}.")
        size = sum(-(-len(content) // PAGE) * PAGE for content in (self.code, *self.files.values()))
        if size > self.limits.disk or sum(name.count("/") + 1 for name in self.files) > self.limits.inodes // 2:
            raise ValueError(
                f"The code and {len(self.files)} files take {size} bytes, the disk of the sandbox has "
                f"{self.limits.disk}; raise `disk`, or `inodes` to twice the number of files."
            )

    def packed(self, base: int) -> bytes:
        """The message to a keeper whose process starts with `base` bytes of memory."""
        header = {"limits": asdict(self.limits), "files": list(self.files), "collect": self.collect, "base": base}
        return wire.packed(header, [self.code, self.stdin, *self.files.values()])


@dataclass(frozen=True, slots=True)
class Ready:
    """An execution that waits for its order: its namespaces are made, its control groups are entered."""

    connection: socket.socket
    base: int
    cgroup: Cgroup


@dataclass(frozen=True)
class Sandbox:
    """A backend, and why those before it are not used: `{"forkserver": "unshare: Operation not permitted"}`.

    Where the backend is warm, two executions are kept ready: making namespaces and entering control groups takes the
    kernel longer than running a short program. Usable from any thread and event loop.
    """

    backend: Backend
    cgroups: Cgroups
    refused: Mapping[str, str] = field(default_factory=dict)
    _spares: deque[Ready] = field(default_factory=deque)
    _owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        atexit.register(self.close)

    async def execute(self, order: Order) -> ExecResult:
        """Run an order to its end; a cancelled one is ended."""
        try:
            ready = self._spared() or await self._ready()
            try:
                ready.cgroup.limit(order.limits)
                async with _streams(ready.connection) as (reader, writer):
                    writer.write(order.packed(ready.base))
                    return await _answer(self.backend, reader, ready.cgroup, order)
            finally:
                self.cgroups.end(ready.cgroup)
                await self._prepare()
        except (Unavailable, OSError) as error:
            return unavailable(str(error), self.backend.name)

    def close(self) -> None:
        """End what runs, in the process that started it; the next order starts it again."""
        if self._owner != os.getpid():
            return
        while spare := self._spared():
            spare.connection.close()
            self.cgroups.end(spare.cgroup)
        self.backend.close()
        self.cgroups.close()

    async def _prepare(self) -> None:
        with suppress(Unavailable, OSError):  # the next order will say so
            while self._warm and len(self._spares) < SPARES and self.backend.alive():
                self._keep(await self._ready())

    def _keep(self, spare: Ready) -> None:
        """Keep a spare, unless others made enough of them meanwhile."""
        if len(self._spares) < SPARES:
            self._spares.append(spare)
        else:
            spare.connection.close()
            self.cgroups.end(spare.cgroup)

    async def _ready(self) -> Ready:
        cgroup = self.cgroups.fresh()
        try:
            connection, base = await self.backend.connect(cgroup.entries)
        except BaseException:  # cancelled too: whatever it is passes on, but the groups are ended
            self.cgroups.end(cgroup)
            raise
        return Ready(connection, base, cgroup)

    @property
    def _warm(self) -> bool:
        """Whether spares are kept; a fork of this process finds its parent's, and must leave them alone."""
        return self.backend.warm and self._owner == os.getpid()

    def _spared(self) -> Ready | None:
        while self._warm and self._spares:
            with suppress(IndexError):  # another thread was faster
                spare = self._spares.popleft()
                if self.backend.alive():
                    return spare
                spare.connection.close()
                self.cgroups.end(spare.cgroup)
        return None


async def _answer(backend: Backend, reader: asyncio.StreamReader, cgroup: Cgroup, order: Order) -> ExecResult:
    limits, started = order.limits, False
    try:
        while True:
            async with asyncio.timeout(limits.wall + GRACE if started else None):
                header, blobs = await wire.receive(reader, limits.captured + limits.disk)
            if "unavailable" in header:
                return unavailable(str(header["unavailable"]), backend.name)
            if "wait" in header:
                return _result(header, blobs, cgroup, backend)
            started = True
    except (EOFError, ConnectionError):
        await asyncio.sleep(SECONDS_TO_NOTICE)
        if not started or not backend.alive():
            return unavailable("the execution's keeper ended", backend.name)
        return _lost(Status.KILLED, backend)
    except TimeoutError:
        return _lost(Status.TIMEOUT, backend)


def _result(report: Mapping[str, Any], blobs: Sequence[bytes], cgroup: Cgroup, backend: Backend) -> ExecResult:
    stdout, stderr, *contents = blobs
    files = dict(zip(report["files"], contents, strict=True))
    return judged(report, stdout, stderr, files, cgroup.oom_kills(), backend.name)


def _lost(status: Status, backend: Backend) -> ExecResult:
    return ExecResult(status, None, "", "", False, 0.0, 0, backend.name)


@asynccontextmanager
async def _streams(connection: socket.socket) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
