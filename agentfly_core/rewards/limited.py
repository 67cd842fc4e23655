"""A computation on what a model wrote, under limits that the kernel keeps: what takes too long is
the answer's doing, and wrong, not unscored.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
from collections.abc import Callable
from contextlib import suppress

SECONDS = 5
MEMORY = 1 << 30
_RESULT = struct.Struct("d")
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)


def limited(work: Callable[[], float], seconds: int = SECONDS) -> float | None:
    """What `work` returns in a fork of this process that may compute for `seconds` and take MEMORY
    bytes more; None where it raises, or needs more than that.

    Raises RuntimeError where the fork was killed by something else, such as a machine without
    memory. It is for the processes of `process=True`, which have one thread.
    """
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        _compute(work, seconds, write)
    os.close(write)
    with open(read, "rb") as line:
        result = line.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and (number := os.WTERMSIG(status)) in _FROM_OUTSIDE:
        raise RuntimeError(f"the process that compares was killed: {signal.Signals(number).name}")
    return float(_RESULT.unpack(result)[0]) if result else None


def _compute(work: Callable[[], float], seconds: int, write: int) -> None:
    """Do the work, say what it returned, and end the fork."""
    try:
        with open("/proc/self/statm", encoding="ascii") as sizes:
            used = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        with suppress(Exception):  # whatever an answer makes libraries raise, it is wrong
            os.write(write, _RESULT.pack(work()))
    finally:
        os._exit(0)
