"""The backend that starts bubblewrap (https://github.com/containers/bubblewrap) for each execution."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence

from agentfly_core.sandbox import view
from agentfly_core.sandbox.forkserver import ENVIRONMENT, SOURCES, Unavailable
from agentfly_core.sandbox.limits import Limits

PROGRAM = "agentfly_core.sandbox.spawned"
OWN_SOURCES = ("agentfly_core/__init__.py", "agentfly_core/sandbox")


class Bubblewrap:
    """One process of `bwrap` an execution; the disk's size is bounded as by default, its inodes are not."""

    name = "bubblewrap"
    warm = False

    def __init__(self, program: str = "bwrap") -> None:
        self._program = program
        self._running: set[asyncio.Task[None]] = set()

    async def connect(self, cgroups: Sequence[int], kept: bool) -> tuple[socket.socket, int]:
        """A connection to the keeper of a new execution, and 0: it finds out itself what memory it starts with."""
        if not (program := shutil.which(self._program)):
            raise Unavailable("bubblewrap is not installed")
        ours, theirs = socket.socketpair()
        with theirs:
            python = [str(view.interpreter()), "-s", "-m", PROGRAM, str(theirs.fileno()), str(view.WORK), "locked"]
            command = [program, *_view(), *python, *map(str, cgroups)]
            process = await asyncio.create_subprocess_exec(
                *command,
                pass_fds=[theirs.fileno(), *cgroups],
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        reaping = asyncio.create_task(_reaped(process))
        self._running.add(reaping)
        reaping.add_done_callback(self._running.discard)
        return ours, 0

    def alive(self) -> bool:
        """Each execution is on its own."""
        return True

    def close(self) -> None:
        """Nothing stays."""


async def _reaped(process: asyncio.subprocess.Process) -> None:
    await process.wait()


def _view() -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv")
    yield from ("--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--chdir", "/")
    for path in [*view.visible(), *view.packages(), *(SOURCES / name for name in OWN_SOURCES)]:
        yield from ("--ro-bind", str(path), str(path))
    for name, link in view.links().items():
        yield from ("--symlink", link, name)
    yield from ("--dev", "/dev", "--proc", "/proc", "--size", str(Limits().disk), "--tmpfs", "/box")
    for name, place in view.SCRATCH.items():
        yield from ("--dir", f"/box/{name}")
        yield from (
            ("--size", "4096", "--tmpfs", place) if place.startswith("/dev") else ("--symlink", f"/box/{name}", place)
        )
    site = dict.fromkeys(str(package.parent) for package in view.packages())
    for key, value in {**ENVIRONMENT, "PYTHONPATH": ":".join([str(SOURCES), *site])}.items():
        yield from ("--setenv", key, value)
    yield from ("--remount-ro", "/")
