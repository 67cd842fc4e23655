"""One execution as its caller sees it: order, wait, judge. The same for every backend."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from agentfly_core.sandbox.cgroups import Cgroup
from agentfly_core.sandbox.guest import protocol
from agentfly_core.sandbox.guest.limits import Limits
from agentfly_core.sandbox.guest.order import Order
from agentfly_core.sandbox.guest.result import ExecResult, Status, judged, unavailable

GRACE = 10.0
SECONDS_TO_NOTICE = 0.2  # until the end of a server that took its executions along is known


class Backend(Protocol):
    """A way of putting code into namespaces of its own."""

    name: str
    warm: bool

    async def connect(self, cgroups: Sequence[int], kept: bool) -> tuple[socket.socket, int]: ...

    def alive(self) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ready:
    """An execution that waits for its order: its namespaces are made, its control groups are entered."""

    connection: socket.socket
    base: int
    cgroup: Cgroup

    @property
    def waits(self) -> bool:
        """Whether it still does: its keeper, which says nothing before the order, ended with the server it was of."""
        try:
            self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False


@dataclass
class Execution:
    """A connection to a keeper and what became of its orders; `alive` says that it can take another one."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ready: Ready
    backend: Backend
    alive: bool = True
    started: bool = False
    oom_kills: int = 0

    async def run(self, order: Order) -> ExecResult:
        """What became of an order; a broken or late answer is a result too, and once the code has started its doing."""
        self.alive = False
        self.writer.write(order.packed(self.ready.base))
        try:
            report, blobs = await self._report(order.limits)
        except (EOFError, ConnectionError):
            await asyncio.sleep(SECONDS_TO_NOTICE)
            if not self.started or not self.backend.alive():
                return unavailable("the execution's keeper ended", self.backend.name)
            return self._lost(Status.KILLED)
        except TimeoutError:
            return self._lost(Status.TIMEOUT)
        if why := report.get("unavailable"):
            return self._lost(Status.KILLED) if self.started else unavailable(str(why), self.backend.name)
        self.alive = bool(report["alive"])
        return self._judged(report, blobs)

    async def _report(self, limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
        while True:
            async with asyncio.timeout(limits.wall + GRACE if self.started else None):
                header, blobs = await protocol.receive(self.reader, limits.captured + limits.disk)
            if "started" not in header:
                return header, blobs
            self.started = True

    def _judged(self, report: Mapping[str, Any], blobs: Sequence[bytes]) -> ExecResult:
        stdout, stderr, *contents = blobs
        files = dict(zip(report["files"], contents, strict=True))
        kills = self.ready.cgroup.oom_kills()
        new, self.oom_kills = kills - self.oom_kills, kills
        return judged(report, stdout, stderr, files, new, self.backend.name)

    def _lost(self, status: Status) -> ExecResult:
        return ExecResult(status, None, "", "", False, 0.0, 0, self.backend.name)


@asynccontextmanager
async def executing(ready: Ready, backend: Backend) -> AsyncIterator[Execution]:
    """An execution on a connection, which is closed with the block; so ends what still runs."""
    reader, writer = await asyncio.open_unix_connection(sock=ready.connection)
    try:
        yield Execution(reader, writer, ready, backend)
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
