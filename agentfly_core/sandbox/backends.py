"""Sandbox backends: a fork server, bubblewrap, and a plain process without isolation."""

from __future__ import annotations

import asyncio
import io
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentfly_core.sandbox.guest import protocol, view
from agentfly_core.sandbox.guest.protocol import KEPT, ONCE

SECONDS_TO_START = 30.0
SOURCES = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "HOME": "/sandbox",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Unavailable(OSError):
    """The sandbox does not work on this machine; the message says why."""


class ForkServer:
    """Starts the server when first used, and again when it died; from any thread and event loop."""

    name = "forkserver"
    warm = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._base = 0

    async def connect(self, cgroups: Sequence[int], kept: bool) -> tuple[socket.socket, int]:
        """A connection to a new execution's init process, and the bytes its child starts with.

        The execution enters the cgroups of these open files. One that is `kept` for several orders
        takes none of the 32 places. Raises Unavailable.
        """
        link = (
            await asyncio.to_thread(self._started)
            if self._link is None or self._died()
            else self._link
        )
        ours, theirs = socket.socketpair()
        kind, descriptors = KEPT if kept else ONCE, [theirs.fileno(), *cgroups]
        with theirs:
            try:
                # polled, since nothing tells of room
                while not _sent(link, kind, descriptors):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            except BaseException:
                # cancelled too: whatever it is passes on, but the connection is closed
                ours.close()
                raise
        return ours, self._base

    def alive(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and not self._died()

    def close(self) -> None:
        """End the server and all its executions."""
        with self._lock:
            if self._link:
                self._link.close()
            if self._process:
                self._process.wait()
            self._link = self._process = None

    def _died(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _started(self) -> socket.socket:
        with self._lock:
            if self._link and not self._died():
                return self._link
            self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = [
                    sys.executable,
                    "-s",
                    "-P",
                    "-m",
                    "agentfly_core.sandbox.guest.server",
                    str(theirs.fileno()),
                ]
                self._process = subprocess.Popen(
                    command,
                    env={**ENVIRONMENT, "PYTHONPATH": str(SOURCES)},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            self._link.settimeout(SECONDS_TO_START)
            try:
                answer = io.BytesIO(self._link.recv(protocol.LARGEST_HEADER))
                said = protocol.read(answer)[0]
            except (OSError, EOFError) as error:
                what = error or "it ended"
                raise Unavailable(f"the sandbox's server did not start: {what}") from error
            self._link.settimeout(None)
            if "unavailable" in said:
                raise Unavailable(str(said["unavailable"]))
            self._base = int(said["base"])
            return self._link


def _sent(link: socket.socket, what: bytes, descriptors: Sequence[int]) -> bool:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))
    try:  # socket.send_fds forgets its flags before Python 3.12, and would wait for room here
        link.sendmsg([what], [rights], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Unavailable(f"the sandbox's server ended: {error}") from error
    return True


OWN_SOURCES = ("agentfly_core/__init__.py", "agentfly_core/sandbox")


class Bubblewrap:
    """One process of `bwrap` an execution."""

    name = "bubblewrap"
    warm = False

    def __init__(self, program: str = "bwrap") -> None:
        self._program = program

    async def connect(self, cgroups: Sequence[int], kept: bool) -> tuple[socket.socket, int]:
        """A connection to a new execution's init process, and 0: it measures its memory itself."""
        if not (program := shutil.which(self._program)):
            raise Unavailable("bubblewrap is not installed")
        ours, theirs = socket.socketpair()
        with theirs:
            python = [str(view.interpreter()), "-s", "-P", "-m", PROGRAM]
            command = [
                program,
                *_view(),
                *python,
                str(theirs.fileno()),
                str(view.WORK),
                "locked",
                *map(str, cgroups),
            ]
            start(command, {}, [theirs.fileno(), *cgroups])
        return ours, 0

    def alive(self) -> bool:
        """Each execution is on its own."""
        return True

    def close(self) -> None:
        """Nothing stays."""


def _view() -> Iterator[str]:
    yield from (
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
        "--clearenv",
        "--chdir",
        "/",
    )
    yield from ("--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
    # the init process mounts the disk, and the code drops it
    yield from ("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN")
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


class Unsafe:
    """One plain process an execution, in a temporary directory; limits hold for each process,
    nothing is hidden.
    """

    name = "unsafe"
    warm = False

    async def connect(self, cgroups: Sequence[int], kept: bool) -> tuple[socket.socket, int]:
        """A connection to a new execution's init process, and 0: it measures its memory itself."""
        ours, theirs = socket.socketpair()
        folder = tempfile.mkdtemp(prefix="agentfly-sandbox-")
        with theirs:
            words = [
                "-s",
                "-P",
                "-m",
                PROGRAM,
                str(theirs.fileno()),
                folder,
                "open",
                *map(str, cgroups),
            ]
            env = {**ENVIRONMENT, "PYTHONPATH": str(SOURCES)}
            start([sys.executable, *words], env, [theirs.fileno(), *cgroups])
        return ours, 0

    def alive(self) -> bool:
        """Each execution is on its own."""
        return True

    def close(self) -> None:
        """Nothing stays."""


PROGRAM = "agentfly_core.sandbox.guest.spawned"


def start(command: Sequence[str], env: Mapping[str, str], descriptors: Sequence[int]) -> None:
    """Start a process that keeps these descriptors, and is reaped when it has ended."""
    process = subprocess.Popen(
        command,
        pass_fds=descriptors,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    threading.Thread(target=process.wait, daemon=True).start()
