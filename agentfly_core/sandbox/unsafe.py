"""No sandbox: model-written code runs as you, with your files and your network. Only for who asks for it by name."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Sequence

from agentfly_core.sandbox.backends import ENVIRONMENT, SOURCES
from agentfly_core.sandbox.starting import PROGRAM, start


class Unsafe:
    """One plain process an execution, in a temporary directory; limits hold for each process, nothing is hidden."""

    name = "unsafe"
    warm = False

    async def connect(self, cgroups: Sequence[int], kept: bool) -> tuple[socket.socket, int]:
        """A connection to the keeper of a new execution, and 0: it finds out itself what memory it starts with."""
        ours, theirs = socket.socketpair()
        folder = tempfile.mkdtemp(prefix="agentfly-sandbox-")
        with theirs:
            words = ["-s", "-P", "-m", PROGRAM, str(theirs.fileno()), folder, "open", *map(str, cgroups)]
            env = {**ENVIRONMENT, "PYTHONPATH": str(SOURCES)}
            start([sys.executable, *words], env, [theirs.fileno(), *cgroups])
        return ours, 0

    def alive(self) -> bool:
        """Each execution is on its own."""
        return True

    def close(self) -> None:
        """Nothing stays."""
