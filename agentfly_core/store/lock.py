"""A file lock that allows only one writer for each run in a local store.

The kernel releases the lock when the process that holds it dies. The locked file contains the name
of this process.
"""

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agentfly_core.system import files
from agentfly_core.system.formats import strict_json
from agentfly_core.system.process import Owner

TRIES = 5
logger = logging.getLogger(__name__)


class Locked(RuntimeError):
    """Another process is writing the run. The message names this process."""


class LockLost(RuntimeError):
    """Another process has taken over this run, so this process must not write to the run again."""


def holder_of(folder: Path) -> str:
    """Return the name of the process that holds the lock of a local run folder.

    The result is empty if the lock is free.
    """
    try:
        files.file_size(folder / "lock.json")  # otherwise opening a pipe would wait forever
        with (folder / "lock.json").open("rb") as file:
            return "" if _taken(file, fcntl.LOCK_SH) else in_words(_owner_of(folder))
    except FileNotFoundError:
        return ""


@contextmanager
def local_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder during the `with` block.

    The lock is a flock(2) on the file lock.json. The content of the file is only information for
    users. Raises Locked if another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files.file_size(folder / "lock.json")
    # not "w+", which would erase the name of the process that holds the lock
    with (folder / "lock.json").open("a+") as file:
        for _ in range(TRIES):
            if _taken(file, fcntl.LOCK_EX):
                break
            time.sleep(0.01)  # `holder_of` holds a shared lock for a moment
        else:
            raise locked(folder.name, in_words(_owner_of(folder)))
        if os.fstat(file.fileno()).st_nlink == 0:  # the holder has removed the run
            raise locked(folder.name, in_words(None))
        file.truncate(0)
        file.write(json.dumps(Owner.current().to_json()))
        file.flush()
        os.fsync(file.fileno())
        yield


def locked(run: str, who: str) -> Locked:
    """Return the error for a run that the process `who` has locked."""
    return Locked(
        f"The run {run!r} is held by {who}. Wait for this process to end, end it, or start another "
        "run with --run NAME or --new."
    )


def in_words(owner: Owner | None) -> str:
    """Describe a process for an error message. For None, return "another process"."""
    return str(owner) if owner else "another process"


def _taken(file: IO[str] | IO[bytes], how: int) -> bool:
    """Try to lock a file without waiting. Return True if this process got the lock."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner_of(folder: Path) -> Owner | None:
    """Return the process that held the lock of a run folder last.

    Returns None if lock.json is missing, empty or damaged.
    """
    path = folder / "lock.json"
    try:
        written = path.read_bytes()
        return Owner.of(strict_json.parse(written.decode())) if written else None
    except FileNotFoundError:  # the holder removed it
        return None
    except ValueError as fault:
        logger.warning(
            "%s is damaged (%s): the lock's owner is unknown. The run is not affected.", path, fault
        )
        return None
