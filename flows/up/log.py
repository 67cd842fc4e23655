"""The one log of all that `agentfly up` starts, whose size is bounded."""

from __future__ import annotations

import shutil
from pathlib import Path

LOG = "logs/up.log"
LARGEST = 10 * 2**20
KEPT = 4


def rotate(log: Path, largest: int = LARGEST) -> None:
    """Move what a log holds to `up.log.1`, and so on to `up.log.4`, once it is larger than this.

    The file itself stays, since the programs that append to it have it open.
    """
    if not log.is_file() or log.stat().st_size <= largest:
        return
    older = [log.with_name(f"{log.name}.{number}") for number in range(1, KEPT + 1)]
    for before, after in zip(older[-2::-1], older[:0:-1], strict=True):
        if before.is_file():
            before.rename(after)
    shutil.copyfile(log, older[0])
    with log.open("r+b") as file:
        file.truncate(0)
