"""Control groups v1 or v2 that bound the memory of an execution; without permission none."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentfly_core.sandbox.guest.protocol import Limits
from agentfly_core.system.process import mark_alive, own_mark

PREFIX = "agentfly-sandbox-"
_ENTER = 'for file; do echo 0 > "$file" || exit 1; done'
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The groups of an execution; a process enters by writing "0" to the open files `entries`."""

    folders: tuple[Path, ...]
    entries: tuple[int, ...] = ()

    def limit(self, limits: Limits) -> None:
        """Set the limits; the init process is one more process."""
        bounds = {
            "memory.limit_in_bytes": limits.memory,
            "memory.memsw.limit_in_bytes": limits.memory,
            "memory.max": limits.memory,
            "memory.swap.max": 0,
            "pids.max": limits.processes + 1,
        }
        for path in (folder / name for folder in self.folders for name in bounds):
            if path.exists():
                path.write_text(str(bounds[path.name]))

    def oom_kills(self) -> int:
        """Number of processes that the kernel killed at the memory limit."""
        words: list[str] = []
        names = ("memory.oom_control", "memory.events")
        for path in (folder / name for folder in self.folders for name in names):
            if path.exists():
                words += path.read_text().split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def removed(self) -> bool:
        """Remove the groups; False while the kernel still has processes in them."""
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True


@dataclass(frozen=True)
class Cgroups:
    """Parents of groups: `Cgroups("v1", (Path("/sys/fs/cgroup/memory/user"), ...))`."""

    version: str
    parents: tuple[Path, ...]
    _ended: deque[Cgroup] = field(default_factory=deque)

    @classmethod
    def detect(cls) -> Cgroups:
        """The best usable version; removes groups of dead processes."""
        for version, parents in _candidates(Path("/proc/self")):
            here = cls(version, tuple(parents))
            if parents and here._works():
                here.sweep()
                return here
        return cls("none", ())

    def sweep(self) -> None:
        """Remove groups of our dead processes."""
        for folder in [old for parent in self.parents for old in parent.glob(f"{PREFIX}*")]:
            if not mark_alive(folder.name):
                Cgroup((folder,)).removed()

    def fresh(self) -> Cgroup:
        """New groups without limits, for `end`."""
        name = f"{PREFIX}{next(_NUMBERS)}-{own_mark()}"
        folders, entries = tuple(parent / name for parent in self.parents), list[int]()
        try:
            for folder in folders:
                folder.mkdir()
                entries.append(os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            self.end(Cgroup(folders, tuple(entries)))
            raise
        return Cgroup(folders, tuple(entries))

    def end(self, cgroup: Cgroup) -> None:
        """Remove groups of ended processes, or in a later call if some still run."""
        for entry in cgroup.entries:
            os.close(entry)
        self._ended.append(cgroup)
        self._remove_ended()

    def close(self) -> None:
        """Remove the remaining groups, within a second."""
        for _ in range(100):
            self._remove_ended()
            if not self._ended:
                return
            time.sleep(0.01)

    def _remove_ended(self) -> None:
        for _ in range(len(self._ended)):
            with suppress(IndexError):  # another thread was faster
                if not (old := self._ended.popleft()).removed():
                    self._ended.append(old)

    def _works(self) -> bool:
        with suppress(OSError):
            cgroup = self.fresh()
            try:
                files = {file.name for folder in cgroup.folders for file in folder.iterdir()}
                if not files & {"memory.limit_in_bytes", "memory.max"}:
                    return False
                entries = [str(folder / "cgroup.procs") for folder in cgroup.folders]
                enter = ["/bin/sh", "-c", _ENTER, "sh", *entries]
                return subprocess.run(enter, check=False, capture_output=True).returncode == 0
            finally:
                self.end(cgroup)
        return False


def _candidates(proc: Path) -> Iterator[tuple[str, Sequence[Path]]]:
    """Possible parents: this process's own group and, in v2, its parent."""
    entries = (line[1:] for line in _lines(proc / "cgroup", ":", 2) if len(line) == 3)
    # by controllers, "" in v2; groups without a path are skipped
    groups = {names: path for names, path in entries if path.startswith("/")}
    v1: list[Path] = []
    for mount in _lines(proc / "mountinfo", " "):
        kind, options = mount[mount.index("-") + 1], set(mount[-1].split(","))
        root, top = _plain(mount[3]), Path(_plain(mount[4]))
        if kind == "cgroup2" and "" in groups:
            own = _below(top, root, groups[""])
            yield from (("v2", [place]) for place in (own, own.parent) if place.is_relative_to(top))
        if kind == "cgroup" and {"memory", "pids"} & options:
            v1 += [
                _below(top, root, path)
                for names, path in groups.items()
                if set(names.split(",")) & options
            ]
    yield "v1", v1


def _lines(file: Path, between: str, splits: int = -1) -> list[list[str]]:
    """The fields of each line, which may contain any other bytes."""
    text = os.fsdecode(file.read_bytes())
    return [line.split(between, splits) for line in text.split("\n") if line]


def _plain(path: str) -> str:
    """A path of mountinfo with octal escapes decoded."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _below(top: Path, root: str, group: str) -> Path:
    """The folder of a group if `root` of its hierarchy is mounted at `top`."""
    return Path(os.path.normpath(top / os.path.relpath(group, root)))
