"""Collect the output of model-written code, and stop the code when it reaches a limit."""

import fcntl
import math
import os
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agentfly_core.sandbox.guest.child_setup import READY, Work, run
from agentfly_core.sandbox.guest.protocol import Status

CHUNK = 65536
GLANCE, BLINK = 0.05, 0.01


@dataclass
class Monitor:
    """Watches a process that runs code.

    If `work.kept` is True, the process runs several pieces of code. The process receives each piece
    over the control socket `line`, and sends the exit code of the piece back. These exit codes are
    unreliable, because the code itself can send a false exit code.

    `pipes` maps the file descriptors of stdout, stderr and `line` to the bytes received so far.
    """

    pid: int
    work: Work
    line: socket.socket
    pidfd: int
    pipes: dict[int, bytearray]
    started: float = field(default_factory=time.monotonic)
    computed: float = 0.0
    disk_was_full: bool = False
    ending: tuple[int, int] | None = None

    @classmethod
    def start(cls, stdin: bytes, work: Work) -> Self:
        """Start the process. Raises OSError if the process cannot be set up."""
        given = in_memory(stdin)
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (out, write_out), (err, write_err) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            run(work, (given, write_out, write_err), theirs)
        theirs.close()
        for descriptor in (given, write_out, write_err):
            os.close(descriptor)
        if (greeting := line.recv(CHUNK)) != READY:
            raise OSError(greeting.decode() or "the process ended before its code started")
        line.setblocking(False)
        pipes = {descriptor: bytearray() for descriptor in (out, err, line.fileno())}
        return cls(pid, work, line, os.pidfd_open(pid), pipes)

    def hand(self, code: bytes) -> None:
        """Send the next piece of code to a process that runs several pieces of code.

        A paused process continues.
        """
        for text in self.pipes.values():
            text.clear()
        self.started, self.computed = time.monotonic(), self._computed
        self.disk_was_full = self.disk_is_full
        self._signal(signal.SIGCONT)
        given = in_memory(code)
        with suppress(OSError):  # it has ended, or it does not read and will run out of time
            socket.send_fds(self.line, [b"."], [given])
        os.close(given)

    def until_end(self, connection: socket.socket) -> Status | None:
        """Collect output until the code ends, a limit is reached, or the caller disconnects.

        Return None if the code ended, TIMEOUT if the caller disconnected, or the Status of the
        limit that was reached.
        """
        # The code may close its pipes, fork, stop itself or fake its exit code. So this waits for
        # the process, the caller and all pipes. Without a control group, the memory is polled.
        limits, reading = self.work.limits, set(self.pipes)
        glance = math.inf if self.work.grouped or os.getpid() != 1 else GLANCE
        while True:
            wanted: list[int | socket.socket] = [self.pidfd, connection, *reading]
            seconds = 0 if self.exit_codes else max(min(self._left, glance), BLINK)
            ready = set(select.select(wanted, [], [], seconds)[0])
            if self._left <= 0 or connection in ready:
                return Status.TIMEOUT
            if glance < math.inf and memory_used() > limits.memory:
                return Status.OOM
            reading -= {pipe for pipe in reading & ready if not self._take(pipe)}
            if sum(map(len, self.pipes.values())) > limits.captured:
                return Status.OUTPUT_LIMIT
            if (self.exit_codes or self.pidfd in ready) and not ready & reading:
                return None

    @property
    def exit_codes(self) -> bytes:
        return bytes(self.pipes[self.line.fileno()])

    @property
    def waits(self) -> bool:
        """Whether the process is running, and has reported the end of the last piece of code."""
        return bool(self.exit_codes) and not select.select([self.pidfd], [], [], 0)[0]

    def rest(self) -> tuple[int, int]:
        """Pause all processes until the next piece of code arrives.

        Return two numbers: the wait status of the last piece of code (its exit code times 256), and
        the peak memory of the process in bytes.
        """
        self._signal(signal.SIGSTOP)
        # reap orphans, because they count as processes
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, flags)) and ended.si_pid != self.pid:
                os.waitpid(ended.si_pid, 0)
        words = Path(f"/proc/{self.pid}/status").read_bytes().partition(b"\nVmHWM:")[2].split()
        return self.exit_codes[0] << 8, int(words[0]) * 1024 if words else 0

    def end(self) -> tuple[int, int]:
        """Kill and reap all processes.

        Return the wait status (exit code or signal) and the peak memory in bytes. Later calls do
        nothing and return the same values.
        """
        # orphans have become children of this process and are reaped, because zombies would count
        # as processes
        if self.ending is None:
            self._signal(signal.SIGKILL)
            wait, usage = os.wait4(self.pid, 0)[1:]
            with suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
            self.ending = wait, usage.ru_maxrss * 1024
        return self.ending

    @property
    def output(self) -> tuple[bytes, bytes]:
        out, err, _ = self.pipes.values()
        room = self.work.limits.captured
        return bytes(out[:room]), bytes(err[: max(room - len(out), 0)])

    @property
    def _left(self) -> float:
        """The remaining seconds until the time limit.

        For a process that runs several pieces of code (`work.kept`), this is the smaller of the
        remaining elapsed time and the remaining CPU time of the current piece.
        """
        left = self.started + self.work.limits.wall - time.monotonic()
        if self.work.kept:
            left = min(left, self.computed + self.work.limits.cpu - self._computed)
        return left

    @property
    def _computed(self) -> float:
        """The CPU seconds that the monitored process has used; see clock_getcpuclockid(3)."""
        return time.clock_gettime(~self.pid << 3 | 2)

    @property
    def disk_is_full(self) -> bool:
        disk = os.statvfs(self.work.folder)
        return self.work.locked and not (disk.f_bfree and disk.f_ffree)

    def _take(self, pipe: int) -> bool:
        data = b""
        with suppress(ConnectionResetError):  # `line` was closed with unread data
            data = os.read(pipe, CHUNK)
        self.pipes[pipe] += data
        return bool(data)

    def _signal(self, number: signal.Signals) -> None:
        """Signal all other processes of this namespace.

        With the backend `unsafe`, signal only the process group of the code.
        """
        with suppress(ProcessLookupError):
            if os.getpid() == 1:
                os.kill(-1, number)
            else:
                os.killpg(self.pid, number)


def in_memory(content: bytes) -> int:
    """Return the file descriptor of a memory file with this content.

    The file is sealed against changes. Otherwise, the sandboxed code could store data in the file,
    and this data might not count toward the sandbox's limits.
    """
    descriptor = os.memfd_create("content", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def memory_used() -> int:
    """Return the memory of all other processes of this namespace, in bytes.

    Memory that several processes share is counted only once.
    """
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            with suppress(OSError):
                text = Path(f"/proc/{name}/smaps_rollup").read_text()
                total += int(text.partition("Pss:")[2].split()[0])
    return total * 1024
