"""Run a program with one line of input, and keep the last bytes of the program's output."""

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
from agentfly_core.system.service import owned_environment

MOST_OUTPUT = 65_536
MOST_SHOWN = 1000
CHUNK = 65_536
ENDED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The end of a program: `ProgramEnd(-9, b"...", b"")`.

    `code` is the exit code. As in `subprocess`, -9 means that signal 9 killed the program. `output`
    and `errors` are the last bytes of stdout and stderr.
    """

    code: int
    output: bytes
    errors: bytes

    @property
    def answer(self) -> str | None:
        """The program's answer, or None if the output is empty.

        If the last line of the output is a JSON object with the key "answer", the answer is the
        value of this key. Otherwise the answer is the whole last line. Secrets of this process
        are masked.
        """
        match self._last_line:
            case {"answer": str(answer)}:
                return answer
            case {"answer": answer}:
                return json.dumps(answer, ensure_ascii=False)
        return None

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts of events from the last line of the output.

        The last line may be a JSON object such as `{"answer": "99", "counts": {"retry": 2}}`. The
        result is empty if this object or its key "counts" is missing.

        Raises ValueError if a count is not an integer.
        """
        match self._last_line.get("counts", {}):
            case dict(counts) if all(isinstance(one, int) for one in counts.values()):
                return counts
            case other:
                raise ValueError(
                    f'Got "counts": {other!r}, expected integers such as {{"retry": 2}}.'
                )

    @property
    def how(self) -> str:
        """The reason for the end, with the last output on stderr.

        Example: "ended with exit code 1: KeyError".
        """
        named = -self.code in [*signal.Signals]
        cause = f"was killed by {signal.Signals(-self.code).name}" if named else ""
        shown = clip(self.errors[-MOST_SHOWN:], MOST_SHOWN).strip()
        return (cause or f"ended with exit code {self.code}") + (f": {shown}" if shown else "")

    @property
    def _last_line(self) -> Mapping[str, Any]:
        """The last line of the output as an object.

        A line of text becomes `{"answer": TEXT}`. Without output, this is `{}`.
        """
        # not `splitlines`: JSON may contain U+2028 and other line separators
        if not (line := clip(self.output, MOST_OUTPUT).strip().rpartition("\n")[2].strip()):
            return {}
        with suppress(ValueError):
            match strict_json.parse(line):
                case dict(printed) if "answer" in printed:
                    return printed
        return {"answer": line}


class OutputTail:
    """A pipe that keeps only the last bytes of a program's output.

    The program writes to the file descriptor `file`.
    """

    def __init__(self) -> None:
        reading, self.file = os.pipe()
        self._pipe, self._reader = os.fdopen(reading, "rb", 0), asyncio.StreamReader()
        self._task = asyncio.create_task(self._read())
        self._tail = b""

    async def read(self) -> bytes:
        """Return the last bytes that were written to the pipe, at most MOST_OUTPUT bytes.

        First wait until all writers have closed the pipe, but not longer than ENDED_SECONDS
        seconds.
        """
        # a daemon of the program in another process group may keep the pipe open
        await asyncio.wait([self._task], timeout=ENDED_SECONDS)
        return self._tail

    def close(self) -> None:
        """Stop reading the pipe."""
        self._task.cancel()

    async def _read(self) -> None:
        protocol = asyncio.StreamReaderProtocol(self._reader)
        connect = asyncio.get_running_loop().connect_read_pipe
        transport, _ = await connect(lambda: protocol, self._pipe)
        try:
            while chunk := await self._reader.read(CHUNK):
                self._tail = (self._tail + chunk)[-MOST_OUTPUT:]
        finally:
            transport.close()


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A started program. It is the leader of its process group.

    `code` is a task that returns the program's exit code.
    """

    pid: int
    code: asyncio.Task[int]
    output: OutputTail
    errors: OutputTail

    async def wait(self) -> ProgramEnd:
        """Wait for the end of the program. Then kill the other processes in its process group."""
        code = await asyncio.shield(self.code)
        self.kill()
        return ProgramEnd(code, await self.output.read(), await self.errors.read())

    def kill(self) -> None:
        """Kill all processes in the program's process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """A program and its arguments.

    - `inherited`: environment variables that the program inherits in addition to the default ones
    - `preload`: modules that are imported in advance. If `preload` is not empty, the program is
      forked from an interpreter that has already imported these modules.
    - `descriptors`: file descriptors that the program inherits. They are ignored with `preload`.
    """

    words: tuple[str, ...]
    inherited: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()

    @asynccontextmanager
    async def started(self, line: str, env: Mapping[str, str]) -> AsyncIterator[RunningProgram]:
        """Run the program in its own process group, and kill the group at the end of the `with`
        block.

        The program can read `line` from stdin. The first call in a process also kills child
        processes that dead AgentFly processes have left running. Raises OSError if the program is
        missing. With `preload`, raises StartAgain (the episode is played again) if the interpreter
        with the imported modules has died.
        """
        await asyncio.to_thread(sweep)
        # own pipes, because asyncio waits until its pipes are closed, and descendants keep them
        # open
        output, errors = OutputTail(), OutputTail()
        try:
            # a file, because a pipe would block if the program never reads
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
        """Start the program. Return its process id, and a coroutine that returns its exit code."""
        kept = owned_environment(("TMPDIR", "TZ", *self.inherited), {})
        python, *words = self.words
        if self.preload:
            script, *arguments = words
            warmed = Warmed(python, script, self.preload, tuple(kept.items()))
            program = await forked(warmed, arguments, {**kept, **env}, streams)
            return program.pid, program.code()
        given, output, errors = streams
        process = await asyncio.create_subprocess_exec(
            *self.words,
            env={**kept, **env},
            stdin=given,
            stdout=output,
            stderr=errors,
            pass_fds=self.descriptors,
            start_new_session=True,  # its descendants can be killed with it
        )
        return process.pid, process.wait()
