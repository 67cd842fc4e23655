"""A control group for each execution, so that the memory of all its processes together is bounded.

cgroup v1 (a hierarchy a controller), v2 (one for all), or none where this user may not make any: then each process
is bounded, and the keeper counts what they use together.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentfly_core.owner import Owner, mark_alive
from agentfly_core.sandbox.limits import Limits

PREFIX = "agentfly-sandbox-"
_LIMITS = {
    "memory.limit_in_bytes": "memory",
    "memory.memsw.limit_in_bytes": "memory",
    "memory.max": "memory",
    "memory.swap.max": "",
    "pids.max": "processes",
}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The groups of one execution; `entries` are open files: a process that writes "0" to each is in."""

    folders: tuple[Path, ...] = ()
    entries: tuple[int, ...] = ()

    def oom_kills(self) -> int:
        """How many processes the kernel ended because there was no memory left for the group."""
        words: list[str] = []
        for folder in self.folders:
            for name in ("memory.oom_control", "memory.events"):
                if (folder / name).exists():
                    words += (folder / name).read_text().split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0


@dataclass(frozen=True)
class Cgroups:
    """Where groups are made: `Cgroups("v1", (Path("/sys/fs/cgroup/memory/user"), Path("/sys/fs/cgroup/pids")))`."""

    version: str
    parents: tuple[Path, ...]
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def found(cls) -> Cgroups:
        """The best that this process may use; what runs that ended left behind is removed."""
        for version, parents in _candidates():
            here = cls(version, tuple(parents))
            if parents and here._works():
                here._sweep()
                return here
        return cls("none", ())

    @contextmanager
    def fresh(self, limits: Limits) -> Iterator[Cgroup]:
        """New groups with these limits, removed afterwards."""
        name = f"{PREFIX}{next(self._numbers)}-{_mark()}"
        folders = tuple(parent / name for parent in self.parents)
        entries: list[int] = []
        try:
            for folder in folders:
                folder.mkdir()
                _limit(folder, limits)
                entries.append(os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
            yield Cgroup(folders, tuple(entries))
        finally:
            for entry in entries:
                os.close(entry)
            for folder in folders:
                _remove(folder)

    def _works(self) -> bool:
        with suppress(OSError):
            with self.fresh(Limits()) as cgroup:
                files = {file.name for folder in cgroup.folders for file in folder.iterdir()}
                return bool(files & {"memory.limit_in_bytes", "memory.max"}) and _can_enter(cgroup.entries)
        return False

    def _sweep(self) -> None:
        for folder in [old for parent in self.parents for old in parent.glob(f"{PREFIX}*")]:
            if not mark_alive(folder.name):
                _remove(folder)


def _candidates() -> Iterator[tuple[str, Sequence[Path]]]:
    """Where groups may be possible: below this process's own group and, in v2, beside it."""
    groups = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    v1: list[Path] = []
    for mount in (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()):
        kind, options, top = mount[mount.index("-") + 1], set(mount[-1].split(",")), Path(mount[4])
        if kind == "cgroup2" and "" in groups:
            own = _below(top, mount[3], groups[""])
            yield from (("v2", [place]) for place in (own, own.parent) if place.is_relative_to(top))
        if kind == "cgroup" and {"memory", "pids"} & options:
            v1 += [_below(top, mount[3], path) for names, path in groups.items() if set(names.split(",")) & options]
    yield "v1", v1


def _below(top: Path, root: str, group: str) -> Path:
    """Where a group's folder is, when `root` of the hierarchy is mounted at `top`."""
    return Path(os.path.normpath(top / os.path.relpath(group, root)))


def _limit(folder: Path, limits: Limits) -> None:
    for name, field_name in _LIMITS.items():
        if (folder / name).exists():
            (folder / name).write_text(str(getattr(limits, field_name)) if field_name else "0")


def _can_enter(entries: Sequence[int]) -> bool:
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        for entry in entries:
            os.write(entry, b"0")
    except OSError:
        os._exit(1)
    os._exit(0)


def _remove(folder: Path) -> None:
    """Remove a group; the kernel may need a moment to see its last process gone."""
    for _ in range(100):
        with suppress(FileNotFoundError):
            try:
                folder.rmdir()
            except OSError:
                time.sleep(0.002)
                continue
        return


def _mark() -> str:
    return Owner.current().mark
