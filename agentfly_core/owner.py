"""Which process owns something on disk, and whether it is still alive."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True, slots=True)
class Owner:
    """A process for all time: `Owner("node7", 4711, 1763740000.25, "0c5d...e1")`; pids alone are used again."""

    host: str
    pid: int
    started: float
    boot: str

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time(), _boot())

    @classmethod
    def of(cls, value: dict[str, Any]) -> Owner:
        """The owner written by `to_json`."""
        return cls(**{name: value[name] for name in ("host", "pid", "started", "boot")})

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `of` reads."""
        return asdict(self)

    @property
    def here(self) -> bool:
        """Whether it belongs to this machine, so that `alive` can tell."""
        return self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        """Whether the process still runs; an owner on another machine counts as alive, since nobody here can tell."""
        if not self.here:
            return True
        if self.boot != _boot() or not psutil.pid_exists(self.pid):
            return False
        try:
            process = psutil.Process(self.pid)
            return bool(abs(process.create_time() - self.started) < 2.0 and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    @property
    def mark(self) -> str:
        """A suffix for the names of unfinished files: `a41f09c2-4711-1763740000`."""
        return f"{_short(self.host)}-{self.pid}-{int(self.started)}"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def mark_alive(name: str) -> bool:
    """Whether the process whose mark ends an unfinished file's name still runs; of other machines nobody here knows."""
    _, host, pid, started = name.rsplit("-", 3)
    here = socket.gethostname()
    return host != _short(here) or Owner(here, int(pid), float(started), _boot()).alive


def _short(host: str) -> str:
    return hashlib.sha256(host.encode()).hexdigest()[:8]


def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else str(psutil.boot_time())
