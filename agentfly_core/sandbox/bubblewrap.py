"""The backend that starts bubblewrap (https://github.com/containers/bubblewrap) for each execution."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Sequence

from agentfly_core.sandbox.backends import ENVIRONMENT, SOURCES, Unavailable
from agentfly_core.sandbox.guest import view
from agentfly_core.sandbox.starting import PROGRAM, start

OWN_SOURCES = ("agentfly_core/__init__.py", "agentfly_core/sandbox")


class Bubblewrap:
    """One process of `bwrap` an execution."""

    name = "bubblewrap"
    warm = False

    def __init__(self, program: str = "bwrap") -> None:
        self._program = program

    async def connect(self, cgroups: Sequence[int], kept: bool) -> tuple[socket.socket, int]:
        """A connection to the keeper of a new execution, and 0: it finds out itself what memory it starts with."""
        if not (program := shutil.which(self._program)):
            raise Unavailable("bubblewrap is not installed")
        ours, theirs = socket.socketpair()
        with theirs:
            python = [str(view.interpreter()), "-s", "-P", "-m", PROGRAM]
            command = [program, *_view(), *python, str(theirs.fileno()), str(view.WORK), "locked", *map(str, cgroups)]
            start(command, {}, [theirs.fileno(), *cgroups])
        return ours, 0

    def alive(self) -> bool:
        """Each execution is on its own."""
        return True

    def close(self) -> None:
        """Nothing stays."""


def _view() -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv", "--chdir", "/")
    yield from ("--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
    yield from ("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN")  # the keeper mounts the disk, and the code drops it
    for path in [*view.visible(), *view.packages(), *(SOURCES / name for name in OWN_SOURCES)]:
        yield from ("--ro-bind", str(path), str(path))
    for device in view.DEVICES:
        yield from ("--dev-bind", device, device)
    for name, link in {**view.links(), **view.STREAMS}.items():
        yield from ("--symlink", link, name)
    for place in (str(view.BOX), *view.SCRATCH.values()):
        yield from ("--dir", place)
    yield from ("--proc", "/proc")
    site = dict.fromkeys(str(package.parent) for package in view.packages())
    for key, value in {**ENVIRONMENT, "PYTHONPATH": ":".join([str(SOURCES), *site])}.items():
        yield from ("--setenv", key, value)
    yield from ("--remount-ro", "/")
