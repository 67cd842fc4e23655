"""The first process of an execution's namespaces: it sets them up, watches the code, and ends all when it ends.

Model-written code runs in a child of it, so that nothing of the code is process 1: signals from inside cannot end it,
and when it ends, the kernel ends whatever is left.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfly_core.sandbox import kernel, view, wire
from agentfly_core.sandbox.inside import Work, run
from agentfly_core.sandbox.limits import Limits
from agentfly_core.sandbox.result import Status

UID = 1000
CHUNK = 65536
GLANCE = 0.05


def keep(connection: socket.socket, cgroups: Sequence[int], uid: int, gid: int) -> None:
    """Run what the connection orders in the namespaces that this process is the first of, and report.

    What fails before the code starts is reported as unavailable; without a report after "started", the code did it.
    """
    try:
        _protect(uid, gid)
        enter(cgroups)
    except OSError as error:
        return refuse(connection, str(error))
    try:
        order, blobs = wire.read(connection.makefile("rb"))
        limits = Limits(**order["limits"])
        furnish(limits)
        work = Work(view.WORK, limits, order["base"], bool(cgroups), locked=True)
        serve(connection, order, blobs, work)
    except (OSError, ValueError, EOFError) as error:
        with suppress(OSError):
            connection.sendall(wire.packed({"unavailable": f"{type(error).__name__}: {error}"}))


def refuse(connection: socket.socket, why: str) -> None:
    """Tell why nothing can be run; the order is read first, or the kernel would drop the answer."""
    with suppress(OSError, EOFError):
        wire.read(connection.makefile("rb"))
        connection.sendall(wire.packed({"unavailable": why}))


def serve(connection: socket.socket, order: Mapping[str, Any], blobs: list[bytes], work: Work) -> None:
    """Lay out the files, run the code to its end, end whatever it started, and report with its output and files."""
    code, stdin, *contents = blobs
    for name, content in {"main.py": code, **dict(zip(order["files"], contents, strict=True))}.items():
        path = work.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    watched = _Watched.start(stdin, work)
    connection.sendall(wire.packed({"started": True}))
    ended = watched.until_end(connection)
    wait, peak = watched.end_all()
    disk = os.statvfs(work.folder)
    report: dict[str, Any] = {"ended": ended, "wait": wait, "duration": watched.seconds, "peak_rss": peak}
    report["disk_full"] = work.locked and not (disk.f_bfree and disk.f_ffree)
    found = _collected(work, order["collect"])
    report["files"] = list(found)
    connection.sendall(wire.packed(report, [bytes(watched.out), bytes(watched.err), *found.values()]))


def enter(cgroups: Sequence[int]) -> None:
    """Enter control groups, and with this process all that it will start; a first entry takes the kernel some ms."""
    for cgroup in cgroups:
        os.write(cgroup, b"0")
        os.close(cgroup)


def furnish(limits: Limits) -> None:
    """Mount what the code may write to, as one bounded file system, and a /proc that shows its own processes only."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    bounds = f"size={limits.disk},nr_inodes={limits.inodes},mode=0755"
    kernel.mount("tmpfs", str(view.BOX), "tmpfs", flags, bounds)
    for name, place in view.SCRATCH.items():
        folder = view.BOX / name
        folder.mkdir()
        kernel.mount(str(folder), place, flags=kernel.MS_BIND)
    kernel.unmount(str(view.BOX))
    kernel.mount("proc", "/proc", "proc", flags | kernel.MS_NOEXEC, "subset=pid")


def _protect(uid: int, gid: int) -> None:
    """Become the user 1000 of the new namespaces; no process inside may look into this one."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{UID} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{UID} {gid} 1")
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    socket.sethostname("sandbox")


@dataclass
class _Watched:
    """The process of the code, with what came out of it so far."""

    pid: int
    limits: Limits
    pipes: dict[int, bytearray]
    out: bytearray
    err: bytearray
    started: float
    glance: float
    seconds: float = 0.0

    @classmethod
    def start(cls, stdin: bytes, work: Work) -> _Watched:
        given = os.memfd_create("stdin")
        with os.fdopen(given, "wb", closefd=False) as file:
            file.write(stdin)
        os.lseek(given, 0, os.SEEK_SET)
        (out, write_out), (err, write_err), (fault, write_fault) = os.pipe(), os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            run(work, (given, write_out, write_err), write_fault)
        for descriptor in (given, write_out, write_err, write_fault):
            os.close(descriptor)
        with os.fdopen(fault) as file:
            if why := file.read():
                raise OSError(why)
        texts = bytearray(), bytearray()
        glance = math.inf if work.grouped or os.getpid() != 1 else GLANCE
        return cls(pid, work.limits, {out: texts[0], err: texts[1]}, *texts, time.monotonic(), glance)

    def until_end(self, connection: socket.socket) -> Status | None:
        """Take its output until the code ends, which is None, or a limit is reached, or the caller is gone."""
        ended, reading = os.pidfd_open(self.pid), set(self.pipes)
        while True:
            left = self.started + self.limits.wall - time.monotonic()
            wanted: list[Any] = [ended, connection, *reading]
            ready = select.select(wanted, [], [], max(min(left, self.glance), 0))[0]
            if left <= 0 or connection in ready:
                return Status.TIMEOUT
            if self.glance < left and _memory_used() > self.limits.memory:
                return Status.OOM
            reading -= {pipe for pipe in ready if pipe in reading and not self._take(pipe)}
            if len(self.out) + len(self.err) > self.limits.captured:
                return Status.OUTPUT_LIMIT
            if ended in ready and not set(ready) & reading:
                return None

    def end_all(self) -> tuple[int, int]:
        """Kill whatever is left, and wait for it; how the code's process ended, and its peak memory in bytes."""
        self.seconds = time.monotonic() - self.started
        _kill_everything(self.pid)
        wait, usage = os.wait4(self.pid, 0)[1:]
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        for pipe in self.pipes:
            os.close(pipe)
        room = self.limits.captured
        del self.out[room:], self.err[max(room - len(self.out), 0) :]
        return wait, usage.ru_maxrss * 1024

    def _take(self, pipe: int) -> bool:
        data = os.read(pipe, CHUNK)
        self.pipes[pipe] += data
        return bool(data)


def _kill_everything(child: int) -> None:
    """Every other process of this namespace, or, where it has no namespace of its own, the group of the child."""
    with suppress(ProcessLookupError):
        if os.getpid() == 1:
            os.kill(-1, signal.SIGKILL)
        else:
            os.killpg(child, signal.SIGKILL)


def _memory_used() -> int:
    """Bytes that all processes of this namespace but this one use together, shared pages counted once."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            with suppress(OSError):
                text = Path(f"/proc/{name}/smaps_rollup").read_text()
                total += int(text.partition("Pss:")[2].split()[0])
    return total * 1024


def _collected(work: Work, names: Sequence[str]) -> dict[str, bytes]:
    """The plain files of these names; those above the size of the disk together, as sparse ones may be, are left."""
    found: dict[str, bytes] = {}
    for name in names:
        room = work.limits.disk - sum(map(len, found.values()))
        if (content := _plain(work.folder, name, room)) is not None:
            found[name] = content
    return found


def _plain(folder: Path, name: str, most: int) -> bytes | None:
    """The content of a plain file; None for one that is not there or too large, and for whatever else has that name.

    No part of the name may be a symbolic link, and the file may have no second name.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    *folders, last = Path(name).parts
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY)]
    try:
        for part in folders:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(last, flags, dir_fd=opened[-1]))
        return _content(opened[-1], most)
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _content(descriptor: int, most: int) -> bytes | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > most:
        return None
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(found.st_size)
