"""Warm interpreters: Python processes that import modules once, and then fork programs."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agentfly_core.gateway import fork_server
from agentfly_core.rollout.rules import StartAgain

START_SECONDS = 300.0
Streams = tuple[int, int, int]
"""File descriptors of standard input, standard output and standard error."""


@dataclass(frozen=True)
class Warmed:
    """The settings of an interpreter that imports modules once, and then forks programs.

    Example: `Warmed("python", "my_agent.py", ("openai",), ...)`. `environment` contains the
    environment variables as pairs of a name and a value.
    """

    python: str
    script: str
    modules: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Forked:
    """A forked program. Its exit code can be read from the pipe `status`."""

    pid: int
    status: int

    async def code(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        status = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(status)
        connect = asyncio.get_running_loop().connect_read_pipe
        transport, _ = await connect(lambda: protocol, os.fdopen(self.status, "rb", 0))
        try:
            return int(await status.read() or -signal.SIGKILL)  # its parent was killed, too
        finally:
            transport.close()

    def kill(self) -> None:
        """Kill the program's process group, and discard the exit code."""
        os.close(self.status)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class WarmInterpreter:
    """An interpreter that imports the modules `Warmed.modules` once, and then forks programs.

    Forked programs start with these modules imported. The interpreter runs until this process ends.
    The constructor raises OSError if the interpreter cannot be started or an import fails.
    """

    def __init__(self, warmed: Warmed) -> None:
        # SEQPACKET keeps the boundaries between messages
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [warmed.python, fork_server.__file__, str(theirs.fileno()), warmed.script]
        with theirs:
            self._process = subprocess.Popen(
                [*words, *warmed.modules],
                env=dict(warmed.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._link.settimeout(START_SECONDS)
        answer = self._link.recv(fork_server.LARGEST)
        if answer != b"ready":
            fault = answer.decode(errors="replace") or f"{self._died()}"
            raise OSError(f"preload={[*warmed.modules]} failed in {warmed.python}: {fault}")

    @property
    def alive(self) -> bool:
        """Whether the interpreter is still running."""
        return self._process.poll() is None

    def fork(self, arguments: Sequence[str], env: Mapping[str, str], streams: Streams) -> Forked:
        """Fork a program with these standard streams. The program becomes the leader of a new
        process session.

        Raises OSError if the program cannot be forked, and StartAgain if the interpreter has died.
        """
        order = {"arguments": [*arguments], "environment": dict(env), "folder": os.getcwd()}
        reading, writing = os.pipe()
        try:
            with suppress(ConnectionError):  # it has died, and the read below returns b""
                socket.send_fds(self._link, [json.dumps(order).encode()], [*streams, writing])
        finally:
            os.close(writing)
        if not (pid := os.read(reading, fork_server.PID_BYTES)):
            os.close(reading)
            raise self._died()
        return Forked(int(pid), reading)

    def _died(self) -> StartAgain:
        # killed, because it may still be alive after its socket is closed, and the next episode
        # must not use it
        self._process.kill()
        code = self._process.wait()
        return StartAgain(f"The interpreter that preloads modules ended with exit code {code}.")


_turn = threading.Lock()
_warm: dict[Warmed, WarmInterpreter] = {}


def warm(warmed: Warmed) -> WarmInterpreter:
    """Return the running interpreter with the settings `warmed`.

    If no such interpreter is running, a new interpreter is started. The interpreter is kept for
    later calls in this process.
    """
    with _turn:
        if (there := _warm.get(warmed)) is None or not there.alive:
            there = _warm[warmed] = WarmInterpreter(warmed)
        return there


async def forked(
    warmed: Warmed, arguments: Sequence[str], env: Mapping[str, str], streams: Streams
) -> Forked:
    """Fork a program from an interpreter that has already imported `warmed.modules`.

    Raises OSError if the program cannot be forked, and StartAgain if the interpreter has died.
    """

    def fork() -> Forked:
        return warm(warmed).fork(arguments, env, streams)

    work = asyncio.create_task(asyncio.to_thread(fork))
    try:
        # the thread cannot be cancelled, so after a cancellation its program must be killed
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        with suppress(OSError, StartAgain):
            (await work).kill()
        raise
