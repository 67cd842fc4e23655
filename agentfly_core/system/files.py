"""Write files atomically, read regular files, and report disk errors with the path of the file."""

import errno
import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.file_shapes import require_relative
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.process import own_mark

LARGEST = 2**30
"""The largest size in bytes of a local file that is read into memory. For a file that a manifest
lists, the limit is the size in the manifest instead.
"""
FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
FULL_IN_WORDS = re.compile(r"No space left on device|[Oo]s error 28\b|Errno 28\b")
"""Matches error messages about a full disk, for libraries that do not give an error number."""


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unchanged_sha256(path: Path) -> str:
    """Return the SHA-256 digest of a large file.

    The digest is cached until the size or the modification time of the file changes.
    """
    state = path.stat()
    return _sha256_at(path.absolute(), state.st_size, state.st_mtime_ns)


@cache
def _sha256_at(path: Path, size: int, changed_ns: int) -> str:
    return sha256(path)


def runs_python(command: Sequence[str]) -> bool:
    """Whether the first word of a command is a Python interpreter."""
    return Path(*command[:1]).name.startswith("python")


def command_files(command: Sequence[str]) -> list[str]:
    """Return the words of a command that are names of existing files: `["a.py"]` for `["python",
    "a.py"]`. A Python interpreter at the beginning is left out.
    """
    words = command[1:] if runs_python(command) else command
    return [word for word in words if Path(word).is_file()]


def sync(path: Path) -> None:
    """Force the content of a file or a folder to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_readable(folder: Path) -> None:
    """Give all files and folders below a folder the permissions of this folder.

    Files do not become executable. The library safetensors writes files that only their owner can
    read, so published folders need this function.
    """
    rights = stat.S_IMODE(folder.stat().st_mode)
    for path in folder.rglob("*"):
        path.chmod(rights if path.is_dir() else rights & 0o666)


def uncache(folder: Path) -> None:
    """Remove the files of a folder from the page cache of the kernel, to free memory.

    The next files that are read or written can then use this memory. In a virtual machine, reused
    memory can be faster than new memory, for example 0.2 s instead of 1 s for 1 GiB.
    """
    for path in filter(Path.is_file, folder.rglob("*")):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_text(path: Path, text: str) -> None:
    """Create or replace a text file atomically. If the folder is missing, it is created."""
    _written_beside(path, text).rename(path)
    sync(path.parent)


def create_text(path: Path, text: str) -> bool:
    """Create a text file atomically. Returns False if the file already exists."""
    part = _written_beside(path, text)
    try:
        # linking fails if the file exists; a rename would replace the existing file
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink()
    sync(path.parent)
    return True


def _written_beside(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # threads may write the same file at once; a rename is atomic only within one file system
    name = f".tmp-{threading.get_ident()}-{path.name}-{own_mark()}"
    part = path.with_name(name)
    with naming(path):
        part.write_text(text, encoding="utf-8")
        sync(part)
    return part


def write_json(path: Path, value: JSON) -> None:
    """Create or replace a JSON file atomically. Raises ValueError for NaN and infinity."""
    write_text(path, json_text(value))


def json_text(value: JSON) -> str:
    """Return a value as indented JSON with sorted keys. Raises ValueError for NaN and infinity."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


class DiskFault(OSError):
    """A path cannot be written. The message contains the path and the reason."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Convert disk errors of the `with` block to DiskFault.

    The message of DiskFault names the path that the disk error contains, or `path` if the disk
    error contains no path.
    """
    try:
        yield
    except DiskFault:
        raise
    except Exception as error:  # raised again; libraries convert disk errors to their own types
        if (fault := disk_fault(error, path)) is None:
            raise
        raise DiskFault(fault) from error


def disk_fault(error: BaseException, path: Path | None = None) -> str | None:
    """Return a message for a disk error, or None if an error is not a disk error.

    An example is "/data/runs: No space left on device. Free some space and repeat the command." If
    the error lacks a path, the message names `path`.
    """
    # libraries convert disk errors to errors with only a text
    failed = error if isinstance(error, OSError) else OSError()
    own, reason = failed.filename, failed.strerror
    where = Path(own) if isinstance(own, str | Path) and own else path
    if where is None:
        return None
    if failed.errno in FULL or FULL_IN_WORDS.search(str(error)):
        return f"{where}: No space left on device. Free some space and repeat the command."
    if reason and failed.errno in REFUSED and own:
        return (
            f"{where}: {reason}. Change the permissions, or run the command in a folder that you "
            "can write to."
        )
    return f"{where}: {reason}" if failed.errno is not None and not own else None


def contained(root: Path, name: str) -> Path:
    """Return the path of `name` in the folder `root`.

    Raises Damaged if the path leads out of `root`, or if it contains a symbolic link.
    """
    try:
        path = root / require_relative(name)
    except ValueError as error:
        raise Damaged(f"A path in {root} leads out of this folder: {error}.") from None
    for place in (path, *path.parents):
        if place == root:
            break
        if place.is_symlink():
            raise Damaged(f"{place} is a symbolic link. Replace it with a copy of its target.")
    return path


def file_size(path: Path) -> int | None:
    """Return the size of a file in bytes, or None if the file is missing.

    Raises Damaged if the path is a folder, a link, a pipe or a device.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Damaged(f"{path} is not a regular file.")
    return status.st_size


def read_regular(path: Path, largest: int = LARGEST) -> bytes | None:
    """Return the bytes of a file, or None if the file is missing.

    Raises Damaged if the path is not a regular file, or if it has more than `largest` bytes.
    """
    size = file_size(path)
    if size is not None and size > largest:
        raise Damaged(f"{path} has {size} bytes, expected at most {largest}.")
    return None if size is None else path.read_bytes()


def file_sizes(folder: Path) -> dict[str, int]:
    """Return the size of each file below a folder, by the file's relative path.

    Raises Damaged if the folder contains a link, a device or a pipe.
    """
    sizes = {}
    for place, folders, names in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *names)):
            if not stat.S_ISDIR(path.lstat().st_mode):
                sizes[path.relative_to(folder).as_posix()] = file_size(path) or 0
    return sizes


def set_aside(path: Path) -> Path:
    """Rename a file or a folder to `.damaged-NAME-1`, and return the new path.

    If this name is taken, the next free number is used.
    """
    places = (path.with_name(f".damaged-{path.name}-{number}") for number in count(1))
    kept = next(place for place in places if not os.path.lexists(place))
    with suppress(FileNotFoundError):  # another process renamed it
        path.rename(kept)
    return kept
