"""One execution as its caller sees it: order, wait, judge. The same for every backend."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

from agentfly_core.sandbox import wire
from agentfly_core.sandbox.cgroups import Cgroup, Cgroups
from agentfly_core.sandbox.forkserver import Unavailable
from agentfly_core.sandbox.limits import Limits
from agentfly_core.sandbox.result import ExecResult, Status, judged, unavailable

MAIN = "main.py"
GRACE = 10.0
SECONDS_TO_NOTICE = 0.2  # until the end of a server that took its executions along is known


class Backend(Protocol):
    """A way of putting code into namespaces of its own."""

    @property
    def name(self) -> str: ...

    async def connect(self, cgroups: Sequence[int]) -> tuple[socket.socket, int]: ...

    def alive(self) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: `Order("print(open('a.txt').read())", {"a.txt": b"hello"}, b"", (), Limits())`."""

    code: str
    files: Mapping[str, bytes]
    stdin: bytes
    collect: tuple[str, ...]
    limits: Limits

    def __post_init__(self) -> None:
        for name in (*self.files, *self.collect):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or name == MAIN:
                raise ValueError(f"Got the file name {name!r}, expected a relative one without '..', not {MAIN}.")
        if (size := sum(map(len, self.files.values()))) > self.limits.disk:
            raise ValueError(f"The files have {size} bytes, the disk of the sandbox {self.limits.disk}; raise `disk`.")

    def packed(self, base: int) -> bytes:
        """The message to a keeper whose process starts with `base` bytes of memory."""
        header = {"limits": asdict(self.limits), "files": list(self.files), "collect": self.collect, "base": base}
        code = self.code.encode(errors="backslashreplace")
        return wire.packed(header, [code, self.stdin, *self.files.values()])


async def execute(backend: Backend, cgroups: Cgroups, order: Order) -> ExecResult:
    """Run an order to its end; a cancelled one is ended."""
    try:
        with cgroups.fresh(order.limits) as cgroup:
            connection, base = await backend.connect(cgroup.entries)
            async with _streams(connection) as (reader, writer):
                writer.write(order.packed(base))
                return await _answer(backend, reader, cgroup, order)
    except (Unavailable, OSError) as error:
        return unavailable(str(error), backend.name)


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
