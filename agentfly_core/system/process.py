"""Identify processes that own files, and check whether they are alive."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from agentfly_core.system.formats.json_value import JSON

LARGEST_PID = 2**31 - 1
MARK = re.compile(r"-([0-9a-f]{8})-(\d{1,9})-(\d+)-([0-9a-f]{8})$")


@dataclass(frozen=True, slots=True)
class Owner:
    """The identity of a process: `Owner("node7", 4711, 1763740000.25, "0c5d...e1", 73512)`.

    - `started`: the start of the process in seconds since 1970, only as information for users
    - `boot`: the boot id of the machine
    - `ticks`: the start of the process in clock ticks since the boot. It is needed because process
      ids are reused.
    """

    host: str
    pid: int
    started: float
    boot: str
    ticks: int

    @classmethod
    def current(cls) -> Owner:
        """Return the identity of this process."""
        pid, started = os.getpid(), psutil.Process().create_time()
        return cls(socket.gethostname(), pid, started, _boot(), _state(pid)[1])

    @classmethod
    def of(cls, value: JSON) -> Owner:
        """Parse the result of `to_json`. Raises ValueError if the value is invalid."""
        match value:
            case {
                "host": str(host),
                "pid": int(pid),
                "started": int() | float() as started,
                "boot": str(boot),
                "ticks": int(ticks),
            } if 0 < pid <= LARGEST_PID:
                return cls(host, pid, started, boot, ticks)
        raise ValueError(f"got {str(value)[:80]!r}, expected host, pid, started, boot and ticks")

    def to_json(self) -> dict[str, JSON]:
        """Return the owner as a JSON object, which `Owner.of` can parse."""
        return asdict(self)

    @property
    def here(self) -> bool:
        """Whether the process was started on this machine after the machine's last boot."""
        return self.host == socket.gethostname() and _boot() in ("", self.boot)

    @property
    def alive(self) -> bool:
        """Whether the process is running.

        For a process of another machine, which cannot be checked, the result is always True.
        """
        return self.host != socket.gethostname() or (self.here and _runs(self.pid, self.ticks))

    @property
    def mark(self) -> str:
        """A text that identifies this process in names of partly written files:
        `a41f09c2-4711-73512-5b0d77e1`.
        """
        return f"{_short(self.host)}-{self.pid}-{self.ticks}-{_short(self.boot)}"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def own_mark() -> str:
    """Return the text that identifies this process in names of partly written files (`Owner.mark`).

    The result is cached.
    """
    return _mark_of(os.getpid())


@functools.cache
def _mark_of(_: int) -> str:
    return Owner.current().mark


def mark_alive(name: str) -> bool:
    """Whether the process that wrote an unfinished file is running.

    `name` is the name of the file. The name contains the identity of the process (`Owner.mark`).
    For a name without an identity, and for a process of another machine, the result is True.
    """
    mark = MARK.search(name)
    if mark is None or mark[1] != _short(socket.gethostname()):
        return True
    return mark[4] == _short(_boot()) and _runs(int(mark[2]), int(mark[3]))


def _runs(pid: int, ticks: int) -> bool:
    """Whether a process with this id and this start time is running. Zombies do not count."""
    try:
        state, started = _state(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        try:  # some systems show users only their own processes
            os.kill(pid, 0)
        except OSError as error:
            return isinstance(error, PermissionError)
        return False
    return state not in "ZX" and ticks == started


def _state(pid: int) -> tuple[str, int]:
    """Return the state letter of a process, and its start in clock ticks since the boot (see
    proc(5)).
    """
    # the program's name before the last ")" may contain any bytes
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[19])


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _boot() -> str:
    """Return the boot id of this machine, or an empty text on systems without boot ids."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""
