"""The process of a program: one line of input, and bounded output."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import clip
from agentfly_core.system.process import Owner
from agentfly_core.system.service import OWNER

MOST_OUTPUT = 65_536
MOST_SHOWN = 1000
CHUNK = 65_536
ENDED_SECONDS = 5.0
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TMPDIR", "TZ")


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended: `ProgramEnd(-9, b"...", b"")`, with the ends of its outputs.

    A negative `code` is a signal, as in `subprocess`.
    """

    code: int
    output: bytes
    errors: bytes

    @property
    def answer(self) -> str | None:
        """The last line of the output, or its "answer" if the line is a JSON object with one."""
        lines = self.output.decode(errors="replace").strip().splitlines()
        if not lines:
            return None
        with suppress(ValueError):
            match strict_json.parse(lines[-1]):
                case {"answer": str(answer)}:
                    return answer
                case {"answer": answer}:
                    return json.dumps(answer, ensure_ascii=False)
        return lines[-1].strip()

    @property
    def how(self) -> str:
        """The cause of the end with the end of its errors: "ended with exit code 1: KeyError"."""
        named = -self.code in [*signal.Signals]
        cause = f"was killed by {signal.Signals(-self.code).name}" if named else ""
        shown = clip(self.errors[-MOST_SHOWN:], MOST_SHOWN).strip()
        return (cause or f"ended with exit code {self.code}") + (f": {shown}" if shown else "")


class OutputTail:
    """The last bytes of a pipe; `file` is its end for writing."""

    def __init__(self) -> None:
        reading, self.file = os.pipe()
        self._pipe, self._reader = os.fdopen(reading, "rb", 0), asyncio.StreamReader()
        self._task = asyncio.create_task(self._read())

    async def read(self) -> bytes:
        """Its last MOST_OUTPUT bytes, after all writers have closed it."""
        # a daemon in another process group may keep the pipe open
        await asyncio.wait([self._task], timeout=ENDED_SECONDS)
        return self._task.result() if self._task.done() else b""

    def close(self) -> None:
        """Stop reading."""
        self._task.cancel()

    async def _read(self) -> bytes:
        protocol, tail = asyncio.StreamReaderProtocol(self._reader), b""
        connect = asyncio.get_running_loop().connect_read_pipe
        transport, _ = await connect(lambda: protocol, self._pipe)
        try:
            while chunk := await self._reader.read(CHUNK):
                tail = (tail + chunk)[-MOST_OUTPUT:]
            return tail
        finally:
            transport.close()


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A started program, the leader of its process group."""

    process: asyncio.subprocess.Process
    output: OutputTail
    errors: OutputTail

    async def wait(self) -> ProgramEnd:
        """Wait for its end, and kill the rest of its process group."""
        code = await self.process.wait()
        self.kill()
        return ProgramEnd(code, await self.output.read(), await self.errors.read())

    def kill(self) -> None:
        """Kill its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@asynccontextmanager
async def started(
    command: Sequence[str], line: str, env: Mapping[str, str]
) -> AsyncIterator[RunningProgram]:
    """Start a program in a process group of its own, send it a line, and kill it at the end.

    It gets the environment variables in INHERITED and `env`. The next run kills programs
    of a dead owner. Raises OSError without such a program.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    # pipes of our own: asyncio waits for the end of its pipes, which descendants keep open
    output, errors = OutputTail(), OutputTail()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=output.file,
            stderr=errors.file,
            env={**inherited, OWNER: json.dumps(Owner.current().to_json()), **env},
            start_new_session=True,
        )
    finally:
        os.close(output.file)
        os.close(errors.file)
    program = RunningProgram(process, output, errors)
    try:
        assert process.stdin
        with suppress(ConnectionError):  # it need not read
            process.stdin.write(line.encode() + b"\n")
            process.stdin.close()
        yield program
    finally:
        program.kill()
        await process.wait()
        output.close()
        errors.close()
