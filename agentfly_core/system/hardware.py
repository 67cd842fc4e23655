"""The hardware that a site names, slots of a hostfile and GPUs visible to a process, and how memory
and threads are used well on it.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

LINE = re.compile(r"(\S+)\s+slots=([1-9]\d{0,5})")
VISIBLE = "CUDA_VISIBLE_DEVICES"
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}
"""How threads of OpenMP wait: some 250 microseconds awake, if it is GNU's, then asleep. A virtual
machine needs long to wake one: asleep between two products, a second thread hardly helps with those
of less than a few milliseconds. Awake for much longer, threads would take the cores from another
service."""
TUNABLES = f"glibc.malloc.mmap_threshold={2**30}:glibc.malloc.trim_threshold={2**33}"
GLIBC = [int(number) for number in platform.libc_ver(version="0")[1].split(".")]
KEEPING_MEMORY = {"GLIBC_TUNABLES": TUNABLES} if GLIBC >= [2, 36] else {}
"""glibc keeps what the main thread has freed, in an update or for new weights, for the next time.
By itself it gives tensors above 32 MiB, and more, back to the system at once; a virtual machine
whose free memory its host takes away then needs 2 s for a GiB that comes back. Some older ones
refuse a threshold above 32 MiB, and would then give back what is above 128 KiB."""


def slots(hostfile: str) -> dict[str, int]:
    """The number of workers on each node of a hostfile, in its order:
    `{"worker-1": 4, "worker-2": 4}`.

    The file has DeepSpeed's format, a line such as `worker-1 slots=4` for each node; `#` begins a
    comment. Raises ValueError for a file that is not there, is of another format, or names a node
    twice.
    """
    if not os.path.isfile(hostfile):
        raise ValueError(f"There is no hostfile {hostfile!r} (looked in {Path.cwd()}).")
    written = (
        line.partition("#")[0].strip()
        for line in Path(hostfile).read_text(errors="replace").splitlines()
    )
    counts: dict[str, int] = {}
    for line in filter(None, written):
        match = LINE.fullmatch(line)
        if not match or match[1] in counts:
            raise ValueError(
                f"{hostfile} has the line {line!r}, expected `NAME slots=NUMBER`, each NAME once."
            )
        counts[match[1]] = int(match[2])
    if not counts:
        raise ValueError(f"{hostfile} names no node, expected lines such as `worker-1 slots=4`.")
    return counts


def visible(gpus: Sequence[int]) -> list[str]:
    """The GPUs that a child process may see, by index among those visible here: `["4", "5"]`.

    Where a scheduler gave this process the GPUs `4,5,6,7`, these are its numbers 0 to 3. Raises
    ValueError for more.
    """
    seen = os.environ.get(VISIBLE)
    if seen is None:
        return [str(gpu) for gpu in gpus]
    names = [*filter(None, seen.split(","))]
    if missing := [gpu for gpu in gpus if gpu >= len(names)]:
        raise ValueError(
            f"There is no GPU {missing[0]}: {VISIBLE}={seen} shows {len(names)}, which count from "
            "0. Choose others by sampler_gpus and learner_gpus, or fewer ranks."
        )
    return [names[gpu] for gpu in gpus]
