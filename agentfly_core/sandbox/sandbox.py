"""The sandbox of this machine: a backend, with executions that are ready for their orders."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.sandbox.cgroups import Cgroups
from agentfly_core.sandbox.execution import Backend, Execution, Ready, executing
from agentfly_core.sandbox.guest.limits import Limits
from agentfly_core.sandbox.guest.order import Order
from agentfly_core.sandbox.guest.result import ExecResult, unavailable

AT_ONCE, SPARES = 32, 2


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
    _places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(default_factory=WeakKeyDictionary)
    _owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        atexit.register(self.close)

    async def execute(self, order: Order) -> ExecResult:
        """Run an order to its end, once fewer than 32 of this event loop run; a cancelled one is ended."""
        places = self._places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
        try:
            async with places, self.begin(order.limits, order.kept) as execution:
                return await execution.run(order)
        except (Unavailable, OSError) as error:
            return unavailable(str(error), self.backend.name)

    @asynccontextmanager
    async def begin(self, limits: Limits, kept: bool) -> AsyncIterator[Execution]:
        """An execution for one order, or with `kept` for several, ended with the block; raises OSError."""
        ready = (None if kept else self._spared()) or await self._ready(kept)
        try:
            async with executing(ready, self.backend) as execution:
                ready.cgroup.limit(limits)
                yield execution
        finally:
            self.cgroups.end(ready.cgroup)
            await self._prepare()

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
                self._keep(await self._ready(kept=False))

    def _keep(self, spare: Ready) -> None:
        """Keep a spare, unless others made enough of them meanwhile."""
        if len(self._spares) < SPARES:
            self._spares.append(spare)
        else:
            spare.connection.close()
            self.cgroups.end(spare.cgroup)

    async def _ready(self, kept: bool) -> Ready:
        cgroup = self.cgroups.fresh()
        try:
            connection, base = await self.backend.connect(cgroup.entries, kept)
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
                if self.backend.alive() and spare.waits:
                    return spare
                spare.connection.close()
                self.cgroups.end(spare.cgroup)
        return None
