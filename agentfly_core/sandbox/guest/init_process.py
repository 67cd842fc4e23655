"""The init process of an execution's namespaces: sets them up, runs the code, kills the rest.

Model-written code runs in a child of it, so that nothing of the code is process 1: signals from
inside cannot end it, and when it ends, the kernel ends whatever is left.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.sandbox.guest import kernel, protocol, view
from agentfly_core.sandbox.guest.child_setup import Work
from agentfly_core.sandbox.guest.monitor import Monitor
from agentfly_core.sandbox.guest.protocol import Limits, Order

if TYPE_CHECKING:
    from agentfly_core.formats.json_value import JSON

UID = 1000


def keep(connection: socket.socket, cgroups: Sequence[int], uid: int, gid: int) -> None:
    """Run what the connection orders in the namespaces that this process is the first of, and
    report.

    What fails before the code starts is reported as unavailable; without a report after "started",
    the code did it.
    """
    try:
        _protect(uid, gid)
        enter(cgroups)
    except OSError as error:
        return refuse(connection, str(error))
    try:
        order, blobs = protocol.read(connection.makefile("rb"))
        limits = Limits(**order["limits"])
        furnish(limits)
        work = Work(
            view.WORK, limits, order["base"], bool(cgroups), locked=True, kept=order["kept"]
        )
        serve(connection, order, blobs, work)
    except (OSError, ValueError, EOFError) as error:
        with suppress(OSError):
            connection.sendall(protocol.packed({"unavailable": f"{type(error).__name__}: {error}"}))


def refuse(connection: socket.socket, why: str) -> None:
    """Tell why nothing can be run; the order is read first, or the kernel would drop the answer."""
    with suppress(OSError, EOFError):
        protocol.read(connection.makefile("rb"))
        connection.sendall(protocol.packed({"unavailable": why}))


def serve(connection: socket.socket, order: Order, blobs: list[bytes], work: Work) -> None:
    """Lay out the files, run the code to its end, end whatever it started, and report with its
    output and files.

    A process that is kept is handed the code of further orders, until one of them or the caller
    ends it.
    """
    code, stdin, *contents = blobs
    named = dict(zip(order["files"], contents, strict=True))
    for name, content in (named if work.kept else {"main.py": code, **named}).items():
        path = work.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    watched = Monitor.start(stdin, work)
    try:
        connection.sendall(protocol.packed({"started": True}))
        if work.kept:
            watched.hand(code)
        while _reported(connection, order, watched):
            order, (code, *_) = protocol.read(connection.makefile("rb"))
            watched.hand(code)
    finally:
        watched.end()


def _reported(connection: socket.socket, order: Order, watched: Monitor) -> bool:
    """Report what became of an order; False when its process has ended."""
    ended = watched.until_end(connection)
    seconds, alive = time.monotonic() - watched.started, ended is None and watched.waits
    wait, peak = watched.rest() if alive else watched.end()
    report: dict[str, JSON] = {
        "ended": ended,
        "wait": wait,
        "alive": alive,
        "duration": seconds,
        "peak_rss": peak,
    }
    found = collected(watched.work.folder, order["collect"], watched.work.limits.disk)
    report |= {"disk_full": watched.filled_the_disk, "files": list(found)}
    connection.sendall(protocol.packed(report, [*watched.output, *found.values()]))
    return alive


def enter(cgroups: Sequence[int]) -> None:
    """Enter control groups, and with this process all that it will start; a first entry takes the
    kernel some ms.
    """
    for cgroup in cgroups:
        os.write(cgroup, b"0")
        os.close(cgroup)


def furnish(limits: Limits) -> None:
    """Mount what the code may write to, as one bounded file system, and a /proc that shows its own
    processes only.
    """
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


def collected(folder: Path, names: Sequence[str], most: int) -> dict[str, bytes]:
    """The plain files of these names; what is above `most` bytes together, as sparse files may be,
    is left.
    """
    found: dict[str, bytes] = {}
    for name in names:
        if (content := _plain(folder, name, most - sum(map(len, found.values())))) is not None:
            found[name] = content
    return found


def _plain(folder: Path, name: str, most: int) -> bytes | None:
    """The content of a plain file; None for one that is not there or too large, and for whatever
    else has that name.

    No part of the name may be a symbolic link, and the file may have no second name.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    *folders, last = Path(name).parts
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY)]
    try:
        for part in folders:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(last, flags, dir_fd=opened[-1]))
        found = os.fstat(opened[-1])
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > most:
            return None
        with os.fdopen(os.dup(opened[-1]), "rb") as file:
            return file.read(found.st_size)
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
