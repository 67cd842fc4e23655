"""Show a table of a run's steps with rewards, update metrics and held-out success. Also draw
learning curves as lines of text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pandas as pd
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

from agentfly_core.experiment.run_layout import RunLayout, step_layout
from agentfly_core.experiment.task import goal_of
from agentfly_core.records import ledger
from agentfly_core.records.intervals import Rate
from agentfly_core.reports.show.markdown import BARS
from agentfly_core.reports.show.sources import HELD_OUT, evaluations, solved_held_out
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON

SUCCESS, TOKENS = "rollout/success", "rollout/avg_sampled_tokens"
SECONDS = ("time/rollout", "time/score", "time/update")
AXES = ("steps", "sampled tokens", "seconds")
NOTHING = "No episode of training was solved, so there is no curve to show."
LEAST = 0.1
"""The smallest range of success that the bars of a curve cover. Otherwise, a single solved
episode would have a bar of full height.
"""
PART = re.compile(r"reward_extra/(.+)/mean")
METRICS = {
    "reward": "rollout/reward",
    "success": SUCCESS,
    "tokens": TOKENS,
    "kl": "train/kl",
    "kl_reference": "train/kl_reference",
    "entropy": "train/entropy",
}
WRITTEN = {"success": ".1%", "tokens": ".1f", "kl": ".4f", "kl_reference": ".4f", "seconds": ".1f"}
LEGEND = (
    "tokens: sampled tokens per episode; seconds: rollout, score and update together; last "
    "columns: parts of the reward, and the policy's success on held-out problems"
)


@dataclass(frozen=True, slots=True)
class Curve:
    """A learning curve.

    `success` has the solved share of the episodes of each step. `reached` has the totals at the end
    of each step: the number of steps, of sampled tokens, and of seconds.

    Curve((0.41, 0.52), {"steps": (1, 2), "sampled tokens": (15872, 31744),
                         "seconds": (4.1, 8.3)})
    """

    success: tuple[float, ...]
    reached: Mapping[str, tuple[float, ...]]

    def to_json(self) -> dict[str, JSON]:
        """Return the curve as JSON."""
        return {"success": list(self.success), **{k: list(v) for k, v in self.reached.items()}}

    def parts(self, axis: str, end: float, count: int) -> pd.Series[float]:
        """Divide an axis from 0 to `end` into `count` parts, and return the success in each part.

        The success in a part is the mean over the steps that ended in this part. If none of the
        steps ended in a part, the part gets the value of the next part.
        """
        # a step that took 0 belongs to the first part
        numbers = np.ceil(np.array(self.reached[axis]) * count / end).clip(1)
        success = pd.Series(self.success, dtype=float).groupby(numbers).mean()
        return success.reindex(range(1, count + 1)).bfill()


def curve(store: Store, run: str, last: int) -> Curve:
    """Return the learning curve of the steps 1 to `last` of a run, including steps before a fork.

    The duration of a step is the sum of its rollout, score and update times. If steps overlap, the
    duration is the time between the end of the previous update and the end of this update. The
    curve skips a step if all of its episodes are unscored. The tokens and seconds of a skipped step
    still count in the totals of later steps.
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
    # The time between two ends is shorter than the sum only if steps overlap. If it is longer,
    # there was a pause, an evaluation or a repeated step, which does not count.
    since = steps["end"].diff()
    steps["seconds"] = steps["seconds"].where(~(since > 0), steps["seconds"].clip(upper=since))
    steps[["sampled tokens", "seconds"]] = steps[["sampled tokens", "seconds"]].cumsum()
    scored = steps.dropna(subset=SUCCESS)
    return Curve(tuple(scored[SUCCESS]), {axis: tuple(scored[axis]) for axis in AXES})


def is_anything_solved(groups: Mapping[str, Sequence[Curve]]) -> bool:
    """Whether at least one episode was solved in the steps of any of the curves."""
    return any(any(curve.success) for group in groups.values() for curve in group)


def plotted(groups: Mapping[str, Sequence[Curve]], axis: str, width: int = 60) -> list[str]:
    """Draw learning curves in characters: one line of `width` bars for each group of runs.

    A bar's height shows the mean success of the group's runs. All groups have the same
    scale.
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
        means = pd.concat([curve.parts(axis, end, width) for curve in group], axis=1).mean(axis=1)
        bars = [BARS[round((mean - low) * scale)] for mean in means.dropna()]
        lines.append(f"  {label:<{margin}}  {''.join(bars)}")
    return lines


@dataclass(frozen=True, slots=True)
class Unbroken:
    """A table that is printed in its full width. The terminal wraps long lines."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # rich would cut cells to the terminal's width
        yield from console.render(self.table, options.update(width=10_000))


@dataclass(frozen=True, slots=True)
class Step:
    """The figures of a step. Step 0 is the policy before training, and has only an evaluation.

    Step(7, {"reward": 0.61, "success": 0.58, "tokens": 31.5, "kl": 0.012, "entropy": 0.41,
             "seconds": 12.3}, {"exact": 0.58, "tool_format": 0.9}, {"test": Rate(0.9, ...)})

    `parts` has the mean of each reward and of each part of a reward. If there is only one mean,
    `parts` is empty, because this mean is also the figure `reward`. `held_out` has the success of
    the step's policy on each set of held-out problems.
    """

    step: int
    figures: Mapping[str, float]
    parts: Mapping[str, float]
    held_out: Mapping[str, Rate]

    def to_json(self) -> dict[str, JSON]:
        """Return the step as JSON. Missing figures are left out."""
        held_out: dict[str, JSON] = {name: rate.to_json() for name, rate in self.held_out.items()}
        fields: dict[str, JSON] = {"step": self.step, **self.figures}
        return {**fields, "parts": dict(self.parts), "held_out": held_out}


def run_steps(store: Store, run: str) -> list[Step]:
    """Read the figures of step 0 and of all finished steps of a run.

    If the run is a fork, the steps before the fork are included. Raises ValueError if there are no
    figures yet.
    """
    record = known_run(store, run)
    settings = recorded_settings(record)
    last = max([settings.start_step, *RunLayout(run).steps(store)])
    names = (*HELD_OUT, *settings.evaluate.datasets)
    evaluated = {name: evaluations(store, record, run, name) for name in names}
    goal = goal_of(settings.goal, settings.rewards)
    steps = []
    for step in range(last + 1):
        measured = store.read_json(step_layout(store, run, step).metrics)
        metrics: Mapping[str, float] = measured["metrics"] if measured else {}
        solved = {name: solved_held_out(of(step), goal) for name, of in evaluated.items()}
        rates = {name: Rate.of(each) for name, each in solved.items() if each}
        if not metrics and not rates:
            continue
        figures = {name: metrics[metric] for name, metric in METRICS.items() if metric in metrics}
        if seconds := [metrics[name] for name in SECONDS if name in metrics]:
            figures["seconds"] = sum(seconds)
        parts = {part[1]: metrics[name] for name in metrics if (part := PART.fullmatch(name))}
        # a single part equals the reward
        steps.append(Step(step, figures, parts if len(parts) > 1 else {}, rates))
    if not steps:
        raise ValueError(f"The run {run!r} has not finished a step yet.")
    return steps


def view(run: str, steps: Sequence[Step]) -> RenderableType:
    """Return a table with a row for each step, and a bar chart of the success in training."""
    figures, parts, held_out = (
        list(dict.fromkeys(name for step in steps for name in of(step)))
        for of in (attrgetter("figures"), attrgetter("parts"), attrgetter("held_out"))
    )
    titles = ["step", *(name.replace("_", " ") for name in figures), *parts, *held_out]
    columns = (Column(title, justify="right", no_wrap=True) for title in titles)
    table = Table(*columns, title=run, title_justify="left", show_edge=False)
    for step in steps:
        shares = {name: rate.share for name, rate in step.held_out.items()}
        table.add_row(
            str(step.step or "start"),
            *(_cell(step.figures.get(name), WRITTEN.get(name, ".3f")) for name in figures),
            *(_cell(step.parts.get(name), ".3f") for name in parts),
            *(_cell(shares.get(name), ".1%") for name in held_out),
        )
    success = {step.step: step.figures["success"] for step in steps if "success" in step.figures}
    curve = Curve(tuple(success.values()), {"steps": tuple(map(float, success))})
    bars = plotted({run: [curve]}, "steps") if any(success.values()) else [NOTHING]
    return Group(Unbroken(table), Text(LEGEND, "dim"), "", *map(Text, bars))


def _cell(value: float | None, pattern: str) -> str:
    # z, because rounding must not print -0.000
    return "" if value is None else format(value, f"z{pattern}")
