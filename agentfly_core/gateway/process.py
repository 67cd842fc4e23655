"""The process of a program: one line of input, and bounded output."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any

from agentfly_core.gateway.warm import Streams, Warmed, forked
from agentfly_core.rollout.child_process import sweep
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import clip
from agentfly_core.system.service import owned_environment, owned_process

MOST_OUTPUT = 65_536
MOST_SHOWN = 1000
CHUNK = 65_536
ENDED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended: `ProgramEnd(-9, b"...", b"")`, with the last bytes of its outputs.

    A negative `code` is a signal, as in `subprocess`.
    """

    code: int
    output: bytes
    errors: bytes

    @property
    def answer(self) -> str | None:
        """The last line of the output, or the value of "answer" if the line is such a JSON object.

        Secrets of this process are replaced.
        """
        match self._last_line:
            case {"answer": str(answer)}:
                return answer
            case {"answer": answer}:
                return json.dumps(answer, ensure_ascii=False)
        return None

    @property
    def counts(self) -> Mapping[str, int]:
        """The "counts" beside the answer; raises ValueError for values that are not integers."""
        match self._last_line.get("counts", {}):
            case dict(counts) if all(isinstance(one, int) for one in counts.values()):
                return counts
            case other:
                raise ValueError(
                    f'Got "counts": {other!r}, expected integers such as {{"retry": 2}}.'
                )

    @property
    def how(self) -> str:
        """The reason for the end, with the last output on stderr: "ended with exit code 1:
        KeyError".
        """
        named = -self.code in [*signal.Signals]
        cause = f"was killed by {signal.Signals(-self.code).name}" if named else ""
        shown = clip(self.errors[-MOST_SHOWN:], MOST_SHOWN).strip()
        return (cause or f"ended with exit code {self.code}") + (f": {shown}" if shown else "")

    @property
    def _last_line(self) -> Mapping[str, Any]:
        """The last line as an object. Text becomes `{"answer": TEXT}`, and no output `{}`."""
        lines = clip(self.output, MOST_OUTPUT).strip().splitlines()
        if not lines:
            return {}
        with suppress(ValueError):
            match strict_json.parse(lines[-1]):
                case dict(printed) if "answer" in printed:
                    return printed
        return {"answer": lines[-1].strip()}


class OutputTail:
    """A pipe that keeps the last bytes. `file` is the descriptor for writing."""

    def __init__(self) -> None:
        reading, self.file = os.pipe()
        self._pipe, self._reader = os.fdopen(reading, "rb", 0), asyncio.StreamReader()
        self._task = asyncio.create_task(self._read())

    async def read(self) -> bytes:
        """Return the last MOST_OUTPUT bytes, once all writers have closed the pipe."""
        # a daemon in another process group may keep the pipe open
        await asyncio.wait([self._task], timeout=ENDED_SECONDS)
        return self._task.result() if self._task.done() else b""

    def close(self) -> None:
        """Stop reading the pipe."""
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
    """A started program, which leads its process group.

    `code` is the task that returns its exit code.
    """

    pid: int
    code: asyncio.Task[int]
    output: OutputTail
    errors: OutputTail

    async def wait(self) -> ProgramEnd:
        """Wait for the end of the program, then kill the rest of its process group."""
        code = await asyncio.shield(self.code)
        self.kill()
        return ProgramEnd(code, await self.output.read(), await self.errors.read())

    def kill(self) -> None:
        """Kill the program's process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """A program and its arguments. `inherited` names further environment variables that it gets.

    With `preload`, the program is forked from an interpreter that has imported these modules.
    Otherwise it inherits the open files `descriptors`.
    """

    words: tuple[str, ...]
    inherited: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()

    @asynccontextmanager
    async def started(self, line: str, env: Mapping[str, str]) -> AsyncIterator[RunningProgram]:
        """Start the program in its own process group with `line` as its input, and kill it at the
        end of the block.

        The first start also kills programs that dead processes left running. Raises OSError for a
        missing program, and StartAgain if the interpreter of `preload` died.
        """
        await asyncio.to_thread(sweep)
        # pipes of our own: asyncio waits for the end of its pipes, which descendants keep open
        output, errors = OutputTail(), OutputTail()
        try:
            # not a pipe, which a program that never reads would block
            with TemporaryFile() as given:
                given.write(line.encode() + b"\n")
                given.seek(0)
                streams = (given.fileno(), output.file, errors.file)
                pid, code = await self._begun(streams, env)
        finally:
            os.close(output.file)
            os.close(errors.file)
        program = RunningProgram(pid, asyncio.create_task(code), output, errors)
        try:
            yield program
        finally:
            program.kill()
            await program.code
            output.close()
            errors.close()

    async def _begun(
        self, streams: Streams, env: Mapping[str, str]
    ) -> tuple[int, Coroutine[Any, Any, int]]:
        """Start the program; return its process id and a coroutine that returns its exit code."""
        kept = owned_environment(("TMPDIR", "TZ", *self.inherited), {})
        python, *words = self.words
        if self.preload:
            script, *arguments = words
            warmed = Warmed(python, script, self.preload, tuple(kept.items()))
            program = await forked(warmed, arguments, {**kept, **env}, streams)
            return program.pid, program.code()
        given, output, errors = streams
        process = await owned_process(
            self.words,
            {**kept, **env},
            stdin=given,
            stdout=output,
            stderr=errors,
            pass_fds=self.descriptors,
        )
        return process.pid, process.wait()
