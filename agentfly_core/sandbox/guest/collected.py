"""Result files, taken from a folder in which model-written code could do whatever it wanted."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path


def collected(folder: Path, names: Sequence[str], most: int) -> dict[str, bytes]:
    """The plain files of these names; what is above `most` bytes together, as sparse files may be, is left."""
    found: dict[str, bytes] = {}
    for name in names:
        if (content := _plain(folder, name, most - sum(map(len, found.values())))) is not None:
            found[name] = content
    return found


def _plain(folder: Path, name: str, most: int) -> bytes | None:
    """The content of a plain file; None for one that is not there or too large, and for whatever else has that name.

    No part of the name may be a symbolic link, and the file may have no second name.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    *folders, last = Path(name).parts
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY)]
    try:
        for part in folders:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(last, flags, dir_fd=opened[-1]))
        return _content(opened[-1], most)
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _content(descriptor: int, most: int) -> bytes | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > most:
        return None
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(found.st_size)
