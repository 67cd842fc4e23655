"""Control groups (version 1 or 2), which limit the memory and the processes of an execution.

Control groups are used only if the current user may create control groups.
"""

import itertools
import os
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agentfly_core.sandbox.guest.protocol import Limits
from agentfly_core.system.process import mark_alive, own_mark

PREFIX = "agentfly-sandbox-"
_ENTER = 'for file; do echo 0 > "$file" || exit 1; done'
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The control groups of an execution, and file descriptors for entering them.

    To enter the groups, a process writes "0" to each of the file descriptors `entries`.
    """

    folders: tuple[Path, ...]
    entries: tuple[int, ...] = ()

    def limit(self, limits: Limits) -> None:
        """Set the memory limit and the process limit of the control groups.

        The process limit is `limits.processes + 1`, because the init process also counts.
        """
        # in this order, because v1 refuses a limit of memory.memsw that is lower than the limit of
        # memory
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
        """Return how many processes the kernel has killed because of the memory limit."""
        words: list[str] = []
        names = ("memory.oom_control", "memory.events")
        for path in (folder / name for folder in self.folders for name in names):
            if path.exists():
                words += path.read_text().split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def removed(self) -> bool:
        """Remove the control groups of the execution, and return whether all are removed.

        A group cannot be removed while processes are in it.
        """
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
    """Creates and removes control groups in the folders `parents`.

    Example: `Cgroups("v1", (Path("/sys/fs/cgroup/memory/user"), ...))`. `version` is the version of
    control groups, "v1" or "v2". If neither version works, `version` is "none".
    """

    version: str
    parents: tuple[Path, ...]
    _ended: deque[Cgroup] = field(default_factory=deque)

    @classmethod
    def detect(cls) -> Self:
        """Find out which version of control groups works: "v2", "v1" or "none".

        Also remove the groups of AgentFly processes that have died.
        """
        groups = Path("/proc/self/cgroup").read_bytes()
        for version, parents in _candidates(groups, Path("/sys/fs/cgroup")):
            here = cls(version, tuple(parents))
            if parents and here._works():
                here.sweep()
                return here
        return cls("none", ())

    def sweep(self) -> None:
        """Remove the groups that dead AgentFly processes have left behind."""
        for folder in [old for parent in self.parents for old in parent.glob(f"{PREFIX}*")]:
            if not mark_alive(folder.name):
                Cgroup((folder,)).removed()

    def fresh(self) -> Cgroup:
        """Create the control groups of an execution. Limits are set later with `Cgroup.limit`.

        After the execution, pass the returned Cgroup to `end`.
        """
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
        """Remove the groups of an execution that has ended.

        If processes are still running in the groups, a later call of `end` or `close` removes the
        groups.
        """
        for entry in cgroup.entries:
            os.close(entry)
        self._ended.append(cgroup)
        self._remove_ended()

    def close(self) -> None:
        """Remove the remaining groups. Give up after one second."""
        for _ in range(100):
            self._remove_ended()
            if not self._ended:
                return
            time.sleep(0.01)

    def _remove_ended(self) -> None:
        for _ in range(len(self._ended)):
            with suppress(IndexError):  # another thread has emptied the queue
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


def _candidates(groups: bytes, root: Path) -> Iterator[tuple[str, Sequence[Path]]]:
    """Yield pairs of a version, such as "v2", and folders in which control groups can be created.

    For v2, the first pair has the group of this process, as listed in /proc/self/cgroup. The second
    pair has the parent of this group. For v1, there is one pair, with a folder for each of the
    controllers `memory` and `pids`. The folder is the group of this process in the controller's
    hierarchy. If this folder does not exist, as in some containers, the controller's top folder is
    used, because the top folder is the container's own group.
    """
    lines = (os.fsdecode(line).split(":", 2) for line in groups.split(b"\n"))
    # paths by controllers; the controllers are "" in v2. Lines are for example 4:memory:/user and
    # 0::/user.
    own = {line[1]: line[2].removeprefix("/") for line in lines if len(line) == 3 and line[2]}
    if "" in own:
        for place in (root / own[""], (root / own[""]).parent):
            if place.is_relative_to(root):
                yield "v2", [place]
    bounded = [names for names in own if {"memory", "pids"} & {*names.split(",")}]
    places = {root / names: root / names / own[names] for names in bounded}
    yield "v1", [place if place.is_dir() else top for top, place in places.items()]
