"""No sandbox: model-written code runs as you, with your files and your network. Only for who asks for it by name."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from agentfly_core.sandbox.forkserver import ENVIRONMENT, SOURCES

PROGRAM = "agentfly_core.sandbox.spawned"


class Unsafe:
    """One plain process an execution, in a temporary directory; limits hold for each process, nothing is hidden."""

    name = "unsafe"
    warm = False

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    async def connect(self, cgroups: Sequence[int], kept: bool) -> tuple[socket.socket, int]:
        """A connection to the keeper of a new execution, and 0: it finds out itself what memory it starts with."""
        ours, theirs = socket.socketpair()
        folder = tempfile.TemporaryDirectory(prefix="agentfly-sandbox-")
        with theirs:
            words = ["-s", "-m", PROGRAM, str(theirs.fileno()), folder.name, "open", *map(str, cgroups)]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                pass_fds=[theirs.fileno(), *cgroups],
                env={**ENVIRONMENT, "PYTHONPATH": str(SOURCES)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        reaping = asyncio.create_task(_reaped(process, folder))
        self._running.add(reaping)
        reaping.add_done_callback(self._running.discard)
        return ours, 0

    def alive(self) -> bool:
        """Each execution is on its own."""
        return True

    def close(self) -> None:
        """Nothing stays."""


async def _reaped(process: asyncio.subprocess.Process, folder: tempfile.TemporaryDirectory[str]) -> None:
    try:
        await process.wait()
    finally:
        folder.cleanup()
