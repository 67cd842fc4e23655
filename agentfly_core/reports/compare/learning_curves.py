"""Success in training, step by step: over steps, over sampled tokens and over seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

import pandas as pd

from agentfly_core.experiment.run_layout import step_layout
from agentfly_core.records import ledger
from agentfly_core.reports.show.markdown import BARS
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON

SUCCESS, TOKENS = "agent/rollout/success", "agent/rollout/avg_sampled_tokens"
SECONDS = ("time/rollout", "time/score", "time/update")
AXES = ("steps", "sampled tokens", "seconds")
NOTHING = "No episode of training was solved, so there is no curve to show."
LEAST = 0.1
"""The bars stand for so much at least, so that a single solved episode is not drawn as a hill."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The share of each step's episodes that were solved, and how far the run was by then, by axis.

    Curve((0.41, 0.52), {"steps": (1, 2), "sampled tokens": (15872, 31744),
                         "seconds": (4.1, 8.3)})
    """

    success: tuple[float, ...]
    reached: Mapping[str, tuple[float, ...]]

    def to_json(self) -> dict[str, JSON]:
        """With each number of the curve in its place."""
        return {"success": list(self.success), **{k: list(v) for k, v in self.reached.items()}}

    def within(self, axis: str, begin: float, end: float) -> float | None:
        """The mean success of the steps that ended in a part of an axis, or that of the one which
        ends behind it; None where the run had ended before.
        """
        left = [
            (x, value)
            for x, value in zip(self.reached[axis], self.success, strict=True)
            if x > begin
        ]
        ended = [value for x, value in left if x <= end]
        return fmean(ended or [left[0][1]]) if left else None


def curve(store: Store, run: str, last: int) -> Curve:
    """The steps 1 to `last` of a run; a fork's begin with those of the run that it continues from.

    A step without a scored episode is left out of `success`, and counts in tokens and seconds; one
    whose metrics.json a kill prevented is left out. The seconds are those of rollout, score and
    update; where steps overlap they are the time from the end of one update to that of the next.
    """
    layouts = [step_layout(store, run, k) for k in range(1, last + 1)]
    ended = [
        (layout, content) for layout in layouts if (content := store.read_json(layout.metrics))
    ]
    steps: list[int] = [content["step"] for _, content in ended]
    metrics: list[Mapping[str, float]] = [content["metrics"] for _, content in ended]
    folders = [store.open(store.artifact(layout.scored)) for layout, _ in ended]
    episodes = [int(pd.read_parquet(folder / ledger.FILE)["episodes"].sum()) for folder in folders]
    tokens = [each[TOKENS] * count for each, count in zip(metrics, episodes, strict=True)]
    seconds = _seconds(metrics, [content["time_ms"] / 1000 for _, content in ended])
    reached = dict(zip(AXES, (steps, accumulate(tokens), accumulate(seconds)), strict=True))

    scored = [SUCCESS in each for each in metrics]
    return Curve(
        tuple(each[SUCCESS] for each in metrics if SUCCESS in each),
        {
            axis: tuple(float(x) for x, kept in zip(values, scored, strict=True) if kept)
            for axis, values in reached.items()
        },
    )


def _seconds(metrics: Sequence[Mapping[str, float]], ends: Sequence[float]) -> list[float]:
    """The seconds that each step was at work; `ends` is when its update ended."""
    at_work = [sum(each[name] for name in SECONDS) for each in metrics]
    seconds = at_work[:1]
    for work, before, end in zip(at_work[1:], ends, ends[1:], strict=False):
        # fewer where its stages ran beside those of the step before; a pause of a stopped run, an
        # evaluation, and a repeated step count nothing
        seconds.append(min(work, end - before) if end > before else work)
    return seconds


def is_anything_solved(groups: Mapping[str, Sequence[Curve]]) -> bool:
    """Whether an episode was solved in any step of any run."""
    return any(any(curve.success) for group in groups.values() for curve in group)


def plotted(groups: Mapping[str, Sequence[Curve]], axis: str, width: int = 60) -> list[str]:
    """A line of text for each group of runs, on common scales: `width` bars from 0 to where the
    last run ended, each the mean over the group's runs that were at work in its part of the axis.
    """
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
