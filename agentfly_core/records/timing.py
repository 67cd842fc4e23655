"""Timings of episodes, stored in the folder of a shard (a batch of episodes played together).

The timings are not part of the shard's digest.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

FILE = "timings.parquet"
_SPAN = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("doing", pa.string()),
        ("start", pa.float64()),
        ("end", pa.float64()),
    ]
)
# CLOCK_BOOTTIME also runs while the machine sleeps, and it ignores corrections of the system clock
_BEGUN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
Doing = Literal["waiting", "generating", "tools", "rewards"]


@dataclass(frozen=True, slots=True)
class Span:
    """An activity with its start and its end in seconds since 1970: `Span("tools", 1763740000.25,
    1763740000.75)`.
    """

    doing: Doing
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timing:
    """An episode's timeline: `Timing("9f2c01d4e5a6b7c8", (Span("generating", ...), ...))`.

    `counts` has the number of occurrences of each event: `{"gateway/overruled/seed": 3}`. These
    numbers become metrics of the episode's shard (batch of episodes).
    """

    trajectory_id: str
    spans: tuple[Span, ...]
    counts: Mapping[str, int] = field(default_factory=dict)

    def seconds(self, doing: Doing) -> float:
        """Return the total duration of an activity in seconds."""
        return sum(span.end - span.start for span in self.spans if span.doing == doing)


def moment() -> float:
    """Return the time in seconds since 1970. The time never decreases within a process."""
    return _BEGUN + time.clock_gettime(time.CLOCK_BOOTTIME)


def write_timings(folder: Path, timings: Iterable[Timing]) -> None:
    """Write the timings of a shard (batch of episodes) to a file in the shard's folder."""
    rows = [
        {"trajectory_id": timing.trajectory_id, **asdict(span)}
        for timing in timings
        for span in timing.spans
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=_SPAN), folder / FILE)


def read_timings(folder: Path) -> list[Timing]:
    """Read the timings of a shard, in the order in which they were written."""
    spans: dict[str, list[Span]] = {}
    with pq.ParquetFile(folder / FILE) as file:
        columns = file.read(_SPAN.names, use_threads=False).to_pydict()
    for name, *span in zip(*columns.values(), strict=True):
        spans.setdefault(name, []).append(Span(*span))
    return [Timing(name, tuple(intervals)) for name, intervals in spans.items()]


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals: `union([(0, 2), (1, 3), (5, 6)])` is 4."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total
