"""The nodes in a hostfile, the visible GPUs, and environment variables for memory and threads."""

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

LINE = re.compile(r"(\S+)\s+slots=([1-9]\d{0,5})")
VISIBLE = "CUDA_VISIBLE_DEVICES"
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}
"""With these variables, waiting OpenMP threads spin for 250 microseconds before they sleep. Waking
threads is slow on virtual machines, and longer spinning would take cores from other services."""
TUNABLES = f"glibc.malloc.mmap_threshold={2**30}:glibc.malloc.trim_threshold={2**33}"
GLIBC = [int(number) for number in platform.libc_ver(version="0")[1].split(".")]
KEEPING_MEMORY = {"GLIBC_TUNABLES": TUNABLES} if GLIBC >= [2, 36] else {}
"""The environment variable that lets glibc keep freed memory for the next training update.
Without the variable, a virtual machine may need 2 s to provide each GiB again. The dict is empty
for glibc before 2.36, which does not support the thresholds in TUNABLES.
"""


def slots(hostfile: str) -> dict[str, int]:
    """Read the number of workers of each node from a DeepSpeed hostfile: `{"worker-1": 4,
    "worker-2": 4}`.

    A line of the file is `worker-1 slots=4`, or a comment that begins with `#`. Raises ValueError
    if the file is missing, has a line in another format, or repeats a node.
    """
    if not os.path.isfile(hostfile):
        raise ValueError(f"The hostfile {hostfile!r} is missing (searched in {Path.cwd()}).")
    written = (
        line.partition("#")[0].strip()
        for line in Path(hostfile).read_text(errors="replace").splitlines()
    )
    counts: dict[str, int] = {}
    for line in filter(None, written):
        match = LINE.fullmatch(line)
        if not match or match[1] in counts:
            raise ValueError(
                f"{hostfile} has the line {line!r}, expected `NAME slots=NUMBER`, with each NAME "
                "on one line only."
            )
        counts[match[1]] = int(match[2])
    if not counts:
        raise ValueError(f"{hostfile} lists no nodes, expected lines such as `worker-1 slots=4`.")
    return counts


def visible(gpus: Sequence[int]) -> list[str]:
    """Return the names of GPUs in CUDA_VISIBLE_DEVICES.

    `gpus` has indices of visible GPUs. With `CUDA_VISIBLE_DEVICES=4,5,6,7`, the indices 0 and 1
    have the names `["4", "5"]`. If CUDA_VISIBLE_DEVICES is not set, the indices are the names.
    The caller must first check that the GPUs exist, for example by `devices.numbered`.
    """
    seen = os.environ.get(VISIBLE)
    if seen is None:
        return [str(gpu) for gpu in gpus]
    names = seen.split(",")
    return [names[gpu] for gpu in gpus]
