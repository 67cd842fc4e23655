"""Compute a reward from model-written text, with limits of CPU time and memory.

If the computation exceeds a limit, the answer counts as wrong.
"""

import os
import resource
import signal
import struct
from collections.abc import Callable
from contextlib import suppress

SECONDS = 5
MEMORY = 1 << 30
NOT_BEGUN = 3
_RESULT = struct.Struct("d")
# signals that a person sends, or the kernel if memory is short. The answer does not cause them
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)


def limited(work: Callable[[], float], seconds: int = SECONDS) -> float | None:
    """Run `work` in a fork of this process, with limits of CPU time and memory. Return the result.

    This process must have a single thread. Returns None if `work` raises an error, crashes or
    exceeds a limit. Raises RuntimeError if SIGKILL or SIGTERM ends the fork, or if the limits
    cannot be set.
    """
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        _compute(work, seconds, write)
    # otherwise this process would wait forever, because its own writing end would stay open
    os.close(write)
    with open(read, "rb") as line:
        result = line.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and (number := os.WTERMSIG(status)) in _FROM_OUTSIDE:
        raise RuntimeError(
            f"the process that compares answers was killed: {signal.Signals(number).name}"
        )
    if status and os.waitstatus_to_exitcode(status) == NOT_BEGUN:
        raise RuntimeError(
            "the process that compares answers could not be started, because its CPU time and "
            "memory could not be limited"
        )
    return float(_RESULT.unpack(result)[0]) if result else None


def _compute(work: Callable[[], float], seconds: int, write: int) -> None:
    code = NOT_BEGUN
    try:
        with open("/proc/self/statm", encoding="ascii") as sizes:
            used = int(sizes.read().split()[0]) * resource.getpagesize()
        # the size of the parent is added to the limit, because the fork has a copy of its memory
        _limit(resource.RLIMIT_AS, used + MEMORY)
        # an answer that crashes the fork must not leave a core file
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_CPU, seconds)
        code = 0
        with suppress(Exception):  # an answer for which a library raises any error is wrong
            os.write(write, _RESULT.pack(work()))
    finally:
        # `sys.exit` would run the exit handlers of the parent
        os._exit(code)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    # the kernel refuses a limit above the hard limit
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
