"""Child processes that exchange lines of text with this process. They are killed when this process
ends.
"""

import math
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentfly_core.system.module_search import for_children

GUARDIAN = "agentfly_core.system.guardian"
END_SECONDS = 30.0


@dataclass(frozen=True)
class Lines:
    """One end of a socket that transmits lines of text.

    Any thread may send lines, but only one thread may receive lines.
    """

    socket: socket.socket
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _rest: bytearray = field(default_factory=bytearray)

    def send(self, line: bytes) -> None:
        """Send a line. Raises OSError if the other side has closed the socket."""
        with self._turn:
            self.socket.sendall(line + b"\n")

    def receive(self, seconds: float) -> bytes:
        """Return the next line.

        Raises TimeoutError if the line does not arrive within `seconds`. Raises EOFError or OSError
        if the other side has closed the socket.
        """
        deadline = time.monotonic() + seconds
        while (end := self._rest.find(b"\n")) < 0:
            if not self._readable(deadline - time.monotonic()):
                raise TimeoutError
            if not (more := self.socket.recv(1 << 20)):
                raise EOFError
            self._rest.extend(more)
        line = bytes(self._rest[:end])
        # a read may also contain the beginning of the next line
        del self._rest[: end + 1]
        return line

    @property
    def at_end(self) -> bool:
        """Whether the other side has closed the socket, and all lines that it sent are read."""
        try:
            return self._readable(0) and not self.socket.recv(1, socket.MSG_PEEK)
        except ConnectionResetError:
            return True

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(None if seconds == math.inf else 1000 * max(0.0, seconds)))


class GuardedProcess:
    """A child process that runs a Python module: `GuardedProcess("my_module", {}, 2, 5)`.

    The module's command line arguments are file descriptors. The first argument is one end of a
    socket, whose other end is the attribute `lines`. The other arguments are `files`, here 5.
    `output`, here 2, is a file descriptor for stdout and stderr of the child. If `output` is None,
    the child uses stdout and stderr of this process.

    The child has the environment variables of this process and those in `env`, here `{}`. Secrets
    of the Prefect and MLflow servers are left out. The child and its descendants are killed when
    this process ends.
    """

    def __init__(
        self, module: str, env: Mapping[str, str], output: int | None = None, *files: int
    ) -> None:
        ours, theirs = socket.socketpair()
        self.lines = Lines(ours)
        # The child's end of the socket is closed in this process. If it stayed open, this process
        # would not notice the death of the child.
        with theirs:
            numbers = [theirs.fileno(), *files]
            self._guardian = subprocess.Popen(
                [sys.executable, "-u", "-m", GUARDIAN, module, *map(str, numbers)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=numbers,
                # a new session, because Ctrl-C in a terminal reaches all processes of a group; the
                # owner of the child ends the child later
                start_new_session=True,
                env={**for_children(), **env},
            )

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._guardian.poll() is None

    def dump_stacks(self) -> None:
        """Send SIGUSR1 to the process, which then prints the stacks of its threads."""
        self._guardian.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """Let the guardian, which is the parent of the process, kill the process.

        Any thread may call this method.
        """
        assert self._guardian.stdin is not None
        # the kernel also closes this pipe when this process is killed
        self._guardian.stdin.close()

    def cause(self) -> str:
        """Wait until the process ends, and return the cause, such as "SIGSEGV" or "exit code 1"."""
        try:
            code = self._guardian.wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # the process closed its socket but still runs
            return self.end()
        self.end()
        named = -code in [*signal.Signals]
        return signal.Signals(-code).name if named else f"exit code {code}"

    def end(self) -> str:
        """Kill the process, and its parent (the guardian) if the parent hangs. Return "SIGKILL"."""
        self.kill()
        self.lines.socket.close()
        try:
            self._guardian.wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # the guardian hangs; its child dies with it
            self._guardian.kill()
            self._guardian.wait()
        return signal.SIGKILL.name
