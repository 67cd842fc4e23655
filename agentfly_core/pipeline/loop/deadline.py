"""A deadline after which no new work begins, on a monotonic clock."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """End of the time in seconds of the monotonic clock: `Deadline.after(hours=6)`."""

    at: float

    @classmethod
    def after(cls, hours: float | None) -> Deadline:
        """So many hours from now, or never."""
        return cls(math.inf if hours is None else time.monotonic() + 3600 * hours)

    @property
    def hours(self) -> float | None:
        """Hours left, above 0; None without an end."""
        return None if math.isinf(self.at) else max(1e-9, (self.at - time.monotonic()) / 3600)

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.at
