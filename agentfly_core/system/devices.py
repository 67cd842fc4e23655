"""File locks on GPUs and CPU slots. All projects and users of the machine share the locks.

CPU slots limit the number of simultaneous runs on the CPU. Only runs that a Prefect worker has
started lock a CPU slot. The kernel frees a lock when the process that holds the lock ends. Child
processes do not inherit locks.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import IO

from agentfly_core.system import gpus, hardware
from agentfly_core.system.formats.text import counted
from agentfly_core.system.process import Owner

PAUSE = 0.25
LONGEST = 300
WAY_OUT = "Ctrl-C, or Cancel in the Prefect UI, ends the waiting."
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a run locks: a GPU, or the CPU slots of this machine.

    `Device("GPU 1", (Path("/tmp/agentfly-GPU-5d0f2b7e-....lock"),))`

    A GPU has one lock file. CPU slots limit the number of runs at a time: `files` has one lock file
    for each slot, and a run locks one of these files.
    """

    name: str
    files: tuple[Path, ...]

    @contextmanager
    def taken(self, holder: str, tell: Tell) -> Iterator[Path]:
        """Lock the device during the `with` block, and yield the path of the locked file.

        One of the device's lock files (`files`) is locked. If other processes have locked all
        files, call `tell` with a message that names these processes, and wait. `holder` is the name
        of this process in the messages of other processes.
        """
        named = ""
        while not (file := next(filter(None, map(_lock, self.files)), None)):
            holders = "; ".join(map(_holder, self.files))
            if holders != named:
                named = holders
                tell(f"Waiting for {self.name}, used by {holders}. {WAY_OUT}")
            time.sleep(PAUSE)

        with file:
            _locked.add(file)
            try:
                file.truncate(0)
                since = time.strftime("%Y-%m-%d %H:%M:%S %Z")
                print(f"{holder} ({Owner.current()}) since {since}", end="", file=file, flush=True)
                yield Path(file.name)
            finally:
                _locked.discard(file)


def numbered(numbers: Sequence[int], locks: str) -> list[Device]:
    """Return the GPUs with the indices `numbers`. Index 0 is the first GPU that this process sees.

    `numbers` is empty for a site without GPUs. `locks` is the folder of the lock files. Raises
    ValueError if a GPU is missing.
    """
    if not numbers:
        return []
    names = gpus.seen()
    if missing := [number for number in numbers if number >= len(names)]:
        seen = os.environ.get(hardware.VISIBLE)
        why = "" if seen is None else f" ({hardware.VISIBLE}={seen})"
        raise ValueError(
            f"GPU {missing[0]} (the first is 0) does not exist: this process sees "
            f"{counted(len(names), 'GPU')}{why}. Change sampler_gpus and learner_gpus, or "
            "use fewer ranks."
        )
    return [
        Device(f"GPU {number}", (Path(locks, f"agentfly-{names[number]}.lock"),))
        for number in numbers
    ]


def slot(count: int, locks: str) -> Device:
    """Return the device that at most `count` runs can lock at the same time.

    The device has `count` lock files. A run locks the device by locking one of these files. `locks`
    is the folder of the lock files.
    """
    which = "the slot" if count == 1 else f"one of the {count} slots"
    files = tuple(Path(locks, f"agentfly-slot-{number}.lock") for number in range(count))
    return Device(f"{which} of this machine for runs that a worker starts (site.slots)", files)


@contextmanager
def held(devices: Sequence[Device], holder: str, tell: Tell) -> Iterator[None]:
    """Lock devices during the `with` block.

    If another process has locked a device, call `tell` with a message that names the other
    process, and wait. `holder` is the name of this process in the messages of other processes, such
    as "the run nightly-2026-11-21". Devices that an outer `with` block has locked are not locked
    again. Devices are locked in a fixed order, which avoids deadlocks.
    """
    already = _held.get()
    wanted = [device for device in devices if already.isdisjoint(device.files)]
    with ExitStack() as stack:
        in_order = sorted(wanted, key=attrgetter("files"))
        taken = [stack.enter_context(device.taken(holder, tell)) for device in in_order]
        before = _held.set(already.union(taken))
        try:
            yield
        finally:
            _held.reset(before)


def _lock(path: Path) -> IO[str] | None:
    """Open a lock file and lock it.

    Returns None if another process holds the lock. Raises ValueError if the file cannot be created
    or opened. A missing file is created as a temporary file and then linked. This avoids O_CREAT,
    which the kernel may refuse for files of other users in /tmp (fs.protected_regular).
    """
    try:
        if not path.exists():
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".agentfly-") as part:
                os.fchmod(part.fileno(), 0o666)
                with suppress(FileExistsError):
                    os.link(part.name, path)
        file = open(  # noqa: SIM115 - its lock is held until it is closed
            path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)
        )
    except OSError as error:
        raise ValueError(
            f"Cannot lock {path}: {error.strerror}. All users must be able to write this file "
            f"(chmod 666) and to create files in {path.parent}. AGENTFLY_LOCKS selects another "
            "folder; set it for all users."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _holder(path: Path) -> str:
    """Return the name of the process that holds a lock, as written in the lock file.

    Control characters are removed. If the file is empty, the result is "another process".
    """
    with suppress(OSError), path.open(errors="replace") as file:
        return "".join(filter(str.isprintable, file.read(LONGEST))) or "another process"
    return "another process"


def _release() -> None:
    """Close the lock files in a forked child, so that only the parent holds the locks."""
    for file in _locked:
        file.close()


_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
_locked: set[IO[str]] = set()
os.register_at_fork(after_in_child=_release)
