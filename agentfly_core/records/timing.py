"""How long episodes took: on disk one row a span of an episode, beside its shard and outside the digest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from agentfly_core.rollout.episode import Span
from agentfly_core.rollout.shard import Timing

FILE = "timings.parquet"


def write_timings(folder: Path, timings: Iterable[Timing]) -> None:
    """Write the timings of a shard."""
    spans = [{"trajectory_id": timing.trajectory_id, **asdict(span)} for timing in timings for span in timing.spans]
    pd.DataFrame(spans, columns=["trajectory_id", "doing", "start", "end"]).to_parquet(folder / FILE)


def read_timings(folder: Path) -> list[Timing]:
    """Read the timings of a shard, in the order written."""
    spans: dict[str, list[Span]] = {}
    for row in pd.read_parquet(folder / FILE).to_dict("records"):
        spans.setdefault(row["trajectory_id"], []).append(Span(row["doing"], row["start"], row["end"]))
    return [Timing(name, tuple(found)) for name, found in spans.items()]


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals: `union([(0, 2), (1, 3), (5, 6)])` is 4."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total
