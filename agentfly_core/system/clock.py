"""The time of day of what takes long, told so that a difference of two times is how long it took."""

from __future__ import annotations

import time

_BEGUN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def moment() -> float:
    """Seconds since 1970; goes on evenly when the system's clock is set, which it reads once in a process."""
    return _BEGUN + time.clock_gettime(time.CLOCK_BOOTTIME)
