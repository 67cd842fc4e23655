"""The backends of the sandbox: a fork server, bubblewrap, and a plain process without isolation."""

import asyncio
import io
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.sandbox.guest import protocol, view

SECONDS_TO_START = 30.0
SERVER, SPAWNED = "agentfly_core.sandbox.guest.server", "agentfly_core.sandbox.guest.spawned"
PYTHON = ("-s", "-P", "-m")
SOURCES = Path(__file__).resolve().parents[2]
# one thread, because threads count as processes; a fixed hash seed, because a random seed would
# change results
ENVIRONMENT = {
    "HOME": "/sandbox",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Unavailable(ServiceFailure, OSError):
    """The sandbox does not work on this machine. The message contains the reason."""


class ForkServer:
    """A backend with a server process. Each execution is a fork of the server.

    The server is started at the first request. If it has died, it is started again at the next
    request. Requests may be made from any thread and event loop.
    """

    name = "forkserver"
    warm = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    async def connect(self, cgroups: Sequence[int], modules: Sequence[str] = ()) -> socket.socket:
        """Fork the init process of a new execution, and return the connection to it.

        `cgroups` are file descriptors of the control groups that the process enters. The server
        process of this backend imports `modules` before the fork. Raises Unavailable if the server
        cannot be started, or dies during the call.
        """
        link = self._link
        if link is None or not self.alive():
            link = await asyncio.to_thread(self._started)
        ours, theirs = socket.socketpair()
        message = " ".join(modules).encode()
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        with theirs:
            descriptors = array("i", [theirs.fileno(), *cgroups])
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            try:
                while True:
                    # tried again while the socket is full, because no event reports when it has
                    # room
                    with suppress(BlockingIOError):
                        # before Python 3.12, socket.send_fds ignores its flags, and would block
                        link.sendmsg([message], rights, flags)
                        return ours
                    await asyncio.sleep(0.01)
            except BaseException as error:  # also after a cancellation
                ours.close()
                if isinstance(error, OSError):
                    raise Unavailable(f"the sandbox's server has died: {error}") from error
                raise

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """End the server and all executions that the server has started."""
        with self._lock:
            if self._link:
                self._link.close()
            if self._process:
                self._process.wait()
            self._link = self._process = None

    def _started(self) -> socket.socket:
        with self._lock:
            if self._link and self.alive():
                return self._link
            self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, *PYTHON, SERVER, str(theirs.fileno())],
                    env={**ENVIRONMENT, "PYTHONPATH": str(SOURCES)},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            self._link.settimeout(SECONDS_TO_START)
            try:
                header = protocol.read(io.BytesIO(self._link.recv(protocol.LARGEST_HEADER)))[0]
            except (OSError, EOFError) as error:
                what = error or "it ended"
                raise Unavailable(f"the sandbox's server did not start: {what}") from error
            self._link.settimeout(None)
            if "unavailable" in header:
                raise Unavailable(str(header["unavailable"]))
            return self._link


OWN_SOURCES = ("agentfly_core/__init__.py", "agentfly_core/sandbox")


class _PerExecution:
    """A backend that starts a new process for each execution."""

    warm = False

    def alive(self) -> bool:
        """Return True. There is no server that could end between executions."""
        return True

    def close(self) -> None:
        """Do nothing, because no process is left after an execution has ended."""

    def _start(
        self,
        python: Sequence[str],
        env: Mapping[str, str],
        where: Sequence[str],
        cgroups: Sequence[int],
    ) -> socket.socket:
        """Start a process, and return the connection to it.

        `python` is the command of the interpreter. `where` has two entries: the working folder, and
        "locked" for an isolated process or "open" for a process without isolation. A thread reaps
        the process when the process has ended.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*python, *PYTHON, SPAWNED, str(theirs.fileno()), *where, *map(str, cgroups)],
                pass_fds=[theirs.fileno(), *cgroups],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        threading.Thread(target=process.wait, daemon=True).start()
        return ours


class Bubblewrap(_PerExecution):
    """A backend that starts each execution with the program `bwrap` (bubblewrap)."""

    name = "bubblewrap"

    async def connect(self, cgroups: Sequence[int], modules: Sequence[str] = ()) -> socket.socket:
        if not (program := shutil.which("bwrap")):
            raise Unavailable("bubblewrap is not installed")
        words = ["--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
        words += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--chdir", "/"]
        # the init process needs this capability to mount file systems; its child drops the
        # capability before the code runs
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
        shown = [*view.visible(), *map(view.shown_at, view.packages())]
        for path in [*view.visible(), *(SOURCES / name for name in OWN_SOURCES)]:
            words += ["--ro-bind", str(path), str(path)]
        for path in view.packages():
            words += ["--ro-bind", str(path), str(view.shown_at(path))]
        for path in view.emptied():
            words += ["--tmpfs", str(path), "--remount-ro", str(path)]
        for device in view.DEVICES:
            words += ["--dev-bind", device, device]
        for name, link in {**view.links(shown), **view.STREAMS}.items():
            words += ["--symlink", link, name]
        for place in (str(view.BOX), *view.SCRATCH.values()):
            words += ["--dir", place]
        words += ["--proc", "/proc"]
        searched = ":".join([str(SOURCES), *view.sites()])
        for key, value in {**ENVIRONMENT, "PYTHONPATH": searched}.items():
            words += ["--setenv", key, value]
        python = [program, *words, "--remount-ro", "/", str(view.interpreter())]
        return self._start(python, {}, [str(view.WORK), "locked"], cgroups)


class Unsafe(_PerExecution):
    """A backend without isolation. Each execution starts a plain process.

    If the process starts further processes, the memory limit applies to each process separately,
    except on machines where control groups limit all processes together.
    """

    name = "unsafe"

    async def connect(self, cgroups: Sequence[int], modules: Sequence[str] = ()) -> socket.socket:
        env = {**ENVIRONMENT, "PYTHONPATH": str(SOURCES)}
        folder = tempfile.mkdtemp(prefix="agentfly-sandbox-")
        return self._start([sys.executable], env, [folder, "open"], cgroups)


Backend = ForkServer | Bubblewrap | Unsafe
