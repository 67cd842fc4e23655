"""A deadline until which work may begin, on a monotonic clock."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """When time is over, in seconds of the monotonic clock: `Deadline.after(hours=6)`."""

    at: float

    @classmethod
    def after(cls, hours: float | None) -> Deadline:
        """So many hours from now; None is never."""
        return cls(math.inf if hours is None else time.monotonic() + 3600 * hours)

    @property
    def hours(self) -> float | None:
        """How many hours are left, a moment where there are none; None without an end."""
        return None if math.isinf(self.at) else max(1e-9, (self.at - time.monotonic()) / 3600)

    @property
    def passed(self) -> bool:
        """Whether it lies behind."""
        return time.monotonic() >= self.at
