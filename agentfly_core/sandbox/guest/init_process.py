"""The init process (process 1) of the namespaces in which model-written code runs. It runs the code
in a child process.

Processes in the namespaces cannot end the init process with signals. When the init process ends,
the kernel kills all other processes in the namespaces.
"""

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
from agentfly_core.sandbox.guest.protocol import Limits, RequestHeader

if TYPE_CHECKING:
    from agentfly_core.system.formats.json_value import JSON

UID, NOBODY = 1000, 65534


def become_nobody() -> None:
    """Give up the rights of root, except the right to create namespaces."""
    if os.geteuid() == 0:
        # in a container with a single user, there is only root
        uids = Path("/proc/self/uid_map").read_text().splitlines()
        ranges = [list(map(int, line.split())) for line in uids]
        if any(first <= NOBODY < first + count for first, _, count in ranges):
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
    if os.geteuid():  # root keeps its capabilities, because it needs them to create namespaces
        kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # set again, because a change of user clears it


def keep(connection: socket.socket, cgroups: Sequence[int], uid: int, gid: int) -> None:
    """Run model-written code from `connection` as user 1000 of this process's new namespaces.

    First, this process enters the control groups `cgroups`, and prevents other processes from
    tracing it. `uid` and `gid` are its user and group outside of the namespaces.
    """
    try:
        kernel.map_user((UID, UID), (uid, gid))
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        # reset, because this setting is inherited from the server
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        socket.sethostname("sandbox")
        enter(cgroups)
    except OSError as error:
        return refuse(connection, str(error))
    serve(connection, view.WORK, grouped=bool(cgroups), locked=True)


def refuse(connection: socket.socket, why: str) -> None:
    """Report the reason why code cannot run.

    The function first reads the request, because the kernel would otherwise discard the report.
    """
    with suppress(OSError, EOFError):
        protocol.read(connection.makefile("rb"))
        connection.sendall(protocol.packed({"unavailable": why}))


def serve(connection: socket.socket, folder: Path, grouped: bool, locked: bool) -> None:
    """Run the model-written code that arrives over a connection, in the folder `folder`.

    `grouped` is whether a control group limits the memory. `locked` is whether the process is
    isolated. A failure of the sandbox is reported over the connection, as `unavailable`.
    """
    try:
        header, blobs = protocol.read(connection.makefile("rb"))
        limits = Limits(**header["limits"])
        if locked:
            furnish(limits)
        _run(connection, header, blobs, Work(folder, limits, grouped, locked, header["kept"]))
    except (OSError, ValueError, EOFError) as error:
        with suppress(OSError):
            connection.sendall(protocol.packed({"unavailable": f"{type(error).__name__}: {error}"}))


def _run(connection: socket.socket, header: RequestHeader, blobs: list[bytes], work: Work) -> None:
    code, stdin, *contents = blobs
    named = dict(zip(header["files"], contents, strict=True))
    for name, content in (named if work.kept else {"main.py": code, **named}).items():
        path = work.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    monitor = Monitor.start(stdin, work)
    try:
        connection.sendall(protocol.packed({"started": True}))
        if work.kept:
            monitor.hand(code)
        while _reported(connection, header, monitor):
            header, (code, *_) = protocol.read(connection.makefile("rb"))
            monitor.hand(code)
    finally:
        monitor.end()


def _reported(connection: socket.socket, header: RequestHeader, monitor: Monitor) -> bool:
    """Wait until the code ends or reaches a limit, and send a report.

    Returns whether the child process can run further code.
    """
    ended = monitor.until_end(connection)
    seconds, alive = time.monotonic() - monitor.started, ended is None and monitor.waits
    wait, peak = monitor.rest() if alive else monitor.end()
    files: dict[str, bytes] = {}
    room = monitor.work.limits.disk  # a limit, because sparse files may claim to be larger
    for name in header["collect"]:
        if (content := _plain(monitor.work.folder, name, room)) is not None:
            files[name] = content
            room -= len(content)
    report: dict[str, JSON] = {
        "ended": ended,
        "wait": wait,
        "alive": alive,
        "duration": seconds,
        "peak_rss": peak,
        "disk_full": monitor.disk_is_full and not monitor.disk_was_full,
        "files": list(files),
    }
    connection.sendall(protocol.packed(report, [*monitor.output, *files.values()]))
    return alive


def enter(cgroups: Sequence[int]) -> None:
    """Enter control groups. Processes that this process forks later are also in these groups."""
    for cgroup in cgroups:
        os.write(cgroup, b"0")
        os.close(cgroup)


def furnish(limits: Limits, root: Path = Path("/")) -> None:
    """Mount the writable folders and /proc.

    The writable folders share a file system of limited size. /proc shows only the processes of this
    namespace.
    """
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    bounds = f"size={limits.disk},nr_inodes={limits.inodes},mode=0755"
    box = root / view.BOX.name
    kernel.mount("tmpfs", str(box), "tmpfs", flags, bounds)
    for name, place in view.SCRATCH.items():
        folder = box / name
        folder.mkdir()
        folder.chmod(0o777)  # writable for all, because another user may use the folder
        kernel.mount(str(folder), str(root / place[1:]), flags=kernel.MS_BIND)
    kernel.unmount(str(box))
    kernel.mount("proc", str(root / "proc"), "proc", flags | kernel.MS_NOEXEC, "subset=pid")


def _plain(folder: Path, name: str, most: int) -> bytes | None:
    """Return the content of a regular file.

    Return None if the file is missing or larger than `most` bytes. Also return None if the path
    contains a link or leads to another kind of file.
    """
    # O_NOFOLLOW checks only the last part of a path, so the parts are opened one by one. With
    # O_NONBLOCK, a FIFO does not block.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    *folders, last = Path(name).parts
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY)]
    try:
        for part in folders:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(last, flags, dir_fd=opened[-1]))
        info = os.fstat(opened[-1])
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or info.st_size > most:
            return None
        with os.fdopen(os.dup(opened[-1]), "rb") as file:
            return file.read(info.st_size)
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
