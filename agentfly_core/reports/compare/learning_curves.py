"""Success in training over steps, sampled tokens and seconds, and tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from agentfly_core.experiment.run_layout import step_layout
from agentfly_core.records import ledger
from agentfly_core.reports.show.markdown import BARS
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON

SUCCESS, TOKENS = "rollout/success", "rollout/avg_sampled_tokens"
SECONDS = ("time/rollout", "time/score", "time/update")
AXES = ("steps", "sampled tokens", "seconds")
NOTHING = "No episode of training was solved, so there is no curve to show."
LEAST = 0.1
"""Smallest range of the bars, so that one solved episode stays small."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The solved share of each step's episodes, and the position on each axis.

    Curve((0.41, 0.52), {"steps": (1, 2), "sampled tokens": (15872, 31744),
                         "seconds": (4.1, 8.3)})
    """

    success: tuple[float, ...]
    reached: Mapping[str, tuple[float, ...]]

    def to_json(self) -> dict[str, JSON]:
        """As JSON."""
        return {"success": list(self.success), **{k: list(v) for k, v in self.reached.items()}}

    def within(self, axis: str, begin: float, end: float) -> float | None:
        """Mean success of steps that ended in this range, else of the next step, else None."""
        left = [
            (x, value)
            for x, value in zip(self.reached[axis], self.success, strict=True)
            if x > begin
        ]
        ended = [value for x, value in left if x <= end]
        return fmean(ended or [left[0][1]]) if left else None


def curve(store: Store, run: str, last: int) -> Curve:
    """The curve of the steps 1 to `last` of a run, with those before a fork.

    Steps without a scored episode count in tokens and seconds only. Seconds are those of rollout,
    score and update, or from one update's end to the next where steps overlap.
    """
    rows = []
    for layout in (step_layout(store, run, step) for step in range(1, last + 1)):
        if content := store.read_json(layout.metrics):
            metrics = content["metrics"]
            episodes = ledger.joined([store.open(store.artifact(layout.scored))])["episodes"].sum()
            tokens, at_work = metrics[TOKENS] * episodes, sum(metrics[name] for name in SECONDS)
            end = content["time_ms"] / 1000
            rows.append((content["step"], tokens, at_work, end, metrics.get(SUCCESS)))
    steps = pd.DataFrame(rows, columns=[*AXES, "end", SUCCESS]).astype(float)
    # less if steps overlap; pauses, evaluations and repeated steps do not count
    since = steps["end"].diff()
    steps["seconds"] = steps["seconds"].where(~(since > 0), steps["seconds"].clip(upper=since))
    steps[["sampled tokens", "seconds"]] = steps[["sampled tokens", "seconds"]].cumsum()
    scored = steps.dropna(subset=SUCCESS)
    return Curve(tuple(scored[SUCCESS]), {axis: tuple(scored[axis]) for axis in AXES})


def is_anything_solved(groups: Mapping[str, Sequence[Curve]]) -> bool:
    """Whether an episode was solved in any step of any run."""
    return any(any(curve.success) for group in groups.values() for curve in group)


def plotted(groups: Mapping[str, Sequence[Curve]], axis: str, width: int = 60) -> list[str]:
    """Lines with `width` bars for each group on common scales, means over the group's runs."""
    curves = [curve for group in groups.values() for curve in group if curve.success]
    if not curves:
        return []
    end = max(curve.reached[axis][-1] for curve in curves)
    values = [value for curve in curves for value in curve.success]
    low = min(values)
    high = max(values) if max(values) == low else max(*values, min(1.0, low + LEAST))
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    margin = max(map(len, groups))
    heights = f"{BARS[0]} {low:.0%}, {BARS[-1]} {high:.0%}" if scale else f"always {low:.0%}"
    lines = [f"success in training over {axis}, 0 to {end:,.0f}; {heights}"]
    for label, group in groups.items():
        parts = [
            [
                mean
                for curve in group
                if (mean := curve.within(axis, k * end / width, (k + 1) * end / width)) is not None
            ]
            for k in range(width)
        ]
        bars = [BARS[round((fmean(part) - low) * scale)] if part else " " for part in parts]
        lines.append(f"  {label:<{margin}}  {''.join(bars).rstrip()}")
    return lines


@dataclass(frozen=True, slots=True)
class Unbroken:
    """A table in its full width; the terminal wraps its lines."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.table, options.update(width=10_000))
