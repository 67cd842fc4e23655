"""Run Python in a sandbox: one program, or several calls in one interpreter (a session)."""

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
    modules: Sequence[str] = (),
) -> ExecResult:
    """Run Python in a new sandbox without access to this machine.

        result = await run("print(open('a.txt').read().upper())", files={"a.txt": "hello"})
        result.status, result.stdout        # Status.OK, "HELLO\\n"

    `files` maps relative file names to contents. These files are in the working directory of the
    code. `collect` lists the names of files to return. The code runs as main.py in a new
    interpreter, with numpy, pandas and scikit-learn if they are installed. If a fork server (a
    process that starts all programs) is available, it imports `modules` once. Later programs can
    then import them without delay. At most 32 programs run at once. Further programs wait. The time
    of this wait does not count towards their time limit.

    Raises Unavailable if the sandbox does not work, and ValueError if a file name is not relative.
    """
    sandbox = await asyncio.to_thread(chosen)
    given = {name: as_bytes(content) for name, content in (files or {}).items()}
    sent = as_bytes(code), given, as_bytes(stdin), tuple(collect), limits or Limits()
    return await sandbox.execute(ExecRequest(*sent, modules=tuple(modules)))


def as_bytes(content: str | bytes) -> bytes:
    """Encode text as UTF-8. Lone surrogates are escaped."""
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content


class Session:
    """An interpreter in a sandbox, which the first call of `run` starts.

    A session can be used on only one event loop.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self._sandbox, self._limits = sandbox, limits
        self._stack, self._turn = AsyncExitStack(), asyncio.Lock()
        self._execution: Execution | None = None

    @property
    def alive(self) -> bool:
        """Whether the next call of `run` can use the variables of earlier calls.

        Before the first call of `run`, and while a call is running, this is False.
        """
        return self._execution is not None and self._execution.alive

    async def run(self, code: str | bytes, collect: Sequence[str] = ()) -> ExecResult:
        """Run code with the variables and files of earlier calls.

        `collect` lists the names of files to return. Concurrent calls are processed one after
        another. If a call is cancelled, the interpreter ends.
        """
        names = tuple(collect)
        request = ExecRequest(as_bytes(code), collect=names, limits=self._limits, kept=True)
        async with self._turn:
            try:
                if self._execution is None:
                    begin = self._sandbox.begin(self._limits)
                    self._execution = await self._stack.enter_async_context(begin)
                return await self._execution.run(request)
            except OSError as error:
                return unavailable(str(error), self._sandbox.backend.name)
            finally:
                if not self.alive:
                    await self.close()

    async def close(self) -> None:
        """End all processes of the session. A later call of `run` starts a new interpreter."""
        self._execution = None
        await self._stack.aclose()


@asynccontextmanager
async def session(limits: Limits | None = None) -> AsyncIterator[Session]:
    """Yield an interpreter in a sandbox for the duration of the `async with` block.

        async with session() as it:
            await it.run("x = 6")
            result = await it.run("print(7 * x)")
            result.stdout, it.alive         # "42\\n", True

    Variables and files are kept even if the code of a call raises an error or calls `exit`.
    Processes are paused between calls. The limits on time, CPU time and output apply to each call.
    The limits on memory, processes and disk apply to the whole session. If the interpreter has
    ended, `alive` is False, and the next call starts a new interpreter. Raises Unavailable if the
    sandbox does not work.
    """
    opened = Session(await asyncio.to_thread(chosen), limits or Limits())
    try:
        yield opened
    finally:
        await opened.close()
