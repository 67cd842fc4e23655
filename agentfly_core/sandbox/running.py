"""Running Python in a sandbox: one program, or a session that keeps its state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from agentfly_core.sandbox.guest.protocol import ExecRequest, ExecResult, Limits, unavailable
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.sandbox import Execution, Sandbox

Files = Mapping[str, str | bytes]


async def run(
    code: str,
    files: Files | None = None,
    stdin: str | bytes = "",
    limits: Limits | None = None,
    collect: Sequence[str] = (),
) -> ExecResult:
    """Run Python in a sandbox of its own, with nothing of this machine in reach; many may run at
    the same time.

        result = await run("print(open('a.txt').read().upper())", files={"a.txt": "hello"})
        result.status, result.stdout        # Status.OK, "HELLO\\n"

    `files` lie in its working directory by relative name, `collect` names those to bring back. It
    starts as main.py in a fresh interpreter state, numpy imported where it is installed. At most 32
    run at once; the others wait, and waiting does not count. Raises Unavailable, with what to do,
    where no sandbox works, and ValueError for a file name outside.
    """
    sandbox = await asyncio.to_thread(chosen)
    given = {name: as_bytes(content) for name, content in (files or {}).items()}
    return await sandbox.execute(
        ExecRequest(as_bytes(code), given, as_bytes(stdin), tuple(collect), limits or Limits())
    )


def as_bytes(content: str | bytes) -> bytes:
    """Code or content as UTF-8; what is none, such as half a pair of surrogates, is written out."""
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content


class Session:
    """An interpreter in a sandbox of its own; it starts with the first call of `run`. Belongs to
    one event loop.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self._sandbox, self._limits = sandbox, limits
        self._stack, self._turn = AsyncExitStack(), asyncio.Lock()
        self._execution: Execution | None = None

    @property
    def alive(self) -> bool:
        """Whether the next call will find what the last one left; False also before the first."""
        return self._execution is not None and self._execution.alive

    async def run(self, code: str | bytes, collect: Sequence[str] = ()) -> ExecResult:
        """Run code after all that ran before it; see `session`. Calls wait for each other; a
        cancelled one ends it.
        """
        request = ExecRequest(
            as_bytes(code), collect=tuple(collect), limits=self._limits, kept=True
        )
        async with self._turn:
            try:
                if self._execution is None:
                    begin = self._sandbox.begin(self._limits, kept=True)
                    self._execution = await self._stack.enter_async_context(begin)
                return await self._execution.run(request)
            except OSError as error:
                return unavailable(str(error), self._sandbox.backend.name)
            finally:
                if not self.alive:
                    await self.close()

    async def close(self) -> None:
        """End it, with all that it started; another call would start afresh."""
        self._execution = None
        await self._stack.aclose()


@asynccontextmanager
async def session(limits: Limits | None = None) -> AsyncIterator[Session]:
    """An interpreter in a sandbox of its own, for the block's duration.

        async with session() as it:
            await it.run("x = 6")
            result = await it.run("print(7 * x)")
            result.stdout, it.alive         # "42\\n", True

    Each call has a result of its own, printing included, and what it raises or exits with leaves
    the rest in place; its `collect` names files to bring back. Between the calls everything in
    there stands still. Time, computing and output are limited for each call, memory, processes and
    disk for all together. Where its process ended, at a limit or by itself, `alive` is False, and
    the next call starts afresh. Raises Unavailable, with what to do, where no sandbox works.
    """
    opened = Session(await asyncio.to_thread(chosen), limits or Limits())
    try:
        yield opened
    finally:
        await opened.close()
