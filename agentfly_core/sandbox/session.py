"""Running Python that a model wrote piece by piece: each finds what the pieces before it left, as in a notebook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from agentfly_core.sandbox.execution import Execution
from agentfly_core.sandbox.guest.limits import Limits
from agentfly_core.sandbox.guest.order import Order
from agentfly_core.sandbox.guest.result import ExecResult, unavailable
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import as_bytes
from agentfly_core.sandbox.sandbox import Sandbox


class Session:
    """An interpreter in a sandbox of its own; it starts with the first call of `run`. Belongs to one event loop."""

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self._sandbox, self._limits = sandbox, limits
        self._stack, self._turn = AsyncExitStack(), asyncio.Lock()
        self._execution: Execution | None = None

    @property
    def alive(self) -> bool:
        """Whether the next call will find what the last one left; False also before the first."""
        return self._execution is not None and self._execution.alive

    async def run(self, code: str | bytes, collect: Sequence[str] = ()) -> ExecResult:
        """Run code after all that ran before it; see `session`. Calls wait for each other; a cancelled one ends it."""
        order = Order(as_bytes(code), collect=tuple(collect), limits=self._limits, kept=True)
        async with self._turn:
            try:
                execution = self._execution or await self._begun()
                return await execution.run(order)
            except OSError as error:
                return unavailable(str(error), self._sandbox.backend.name)
            finally:
                if not self.alive:
                    await self.close()

    async def close(self) -> None:
        """End it, with all that it started; another call would start afresh."""
        self._execution = None
        await self._stack.aclose()

    async def _begun(self) -> Execution:
        begin = self._sandbox.begin(self._limits, kept=True)
        self._execution = await self._stack.enter_async_context(begin)
        return self._execution


@asynccontextmanager
async def session(limits: Limits | None = None) -> AsyncIterator[Session]:
    """An interpreter in a sandbox of its own, for the block's duration.

        async with session() as it:
            await it.run("x = 6")
            result = await it.run("print(7 * x)")
            result.stdout, it.alive         # "42\\n", True

    Each call has a result of its own, printing included, and what it raises or exits with leaves the rest in place; its
    `collect` names files to bring back. Between the calls everything in there stands still. Time, computing and output
    are limited for each call, memory, processes and disk for all together. Where its process ended, at a limit or by
    itself, `alive` is False, and the next call starts afresh. Raises Unavailable, with what to do, where no sandbox
    works.
    """
    opened = Session(await asyncio.to_thread(chosen), limits or Limits())
    try:
        yield opened
    finally:
        await opened.close()
