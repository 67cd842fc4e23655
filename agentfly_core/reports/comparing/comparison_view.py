"""A comparison for people: a table and curves in the terminal, and the same as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from agentfly_core.reports.comparing.learning_curves import AXES, Curve, plotted
from agentfly_core.reports.comparing.run_comparison import Group, RunComparison, shown
from agentfly_core.reports.comparing.seed_intervals import Estimate

SETTINGS_SHOWN = 6
Curves = Mapping[str, Sequence[Curve]]
"""The curves of each group's runs, by the group's label."""


def view(comparison: RunComparison, curves: Curves, split: str) -> RenderableType:
    """A row a group, what the runs differ in as columns; curves of training; the sentence."""
    base, *others = comparison.groups
    keys = [*base.differs]
    table = Table(
        *(Column(key, overflow="fold") for key in keys[:SETTINGS_SHOWN]),
        *([] if keys else [Column("policy", overflow="fold")]),
        Column("seeds", justify="right"),
        Column("solved", justify="right", no_wrap=True),
        Column("95 % interval", justify="right", no_wrap=True),
        *([Column("difference", justify="right", no_wrap=True)] if others else []),
        title=f"{comparison.problems} {split} problems{_left_out(comparison)}",
        title_justify="left",
        show_edge=False,
    )
    for group in comparison.groups:
        settings = [shown(group.differs[key]) for key in keys[:SETTINGS_SHOWN]]
        low, high = group.success.interval
        table.add_row(
            *(settings or [group.label]),
            ", ".join(str(policy.seed) for policy in group.policies),
            f"{group.success.value:.1%}",
            f"{low:.1%} to {high:.1%}",
            *([points(group.difference) if group.difference else "-"] if others else []),
        )
    more = []
    if len(keys) > SETTINGS_SHOWN:
        more = [Text(f"They differ in {len(keys) - SETTINGS_SHOWN} more settings: --json.", "dim")]
    lines = [line for axis in AXES for line in ("", *plotted(curves, axis))]
    return Lines(table, *more, *map(Text, lines), "", Text(comparison.sentence, "bold"))


def points(difference: Estimate) -> str:
    """A difference of shares in points: `+4.1 (+2.0 to +6.2)`."""
    low, high = difference.interval
    return f"{100 * difference.value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def draw(comparison: RunComparison, curves: Curves, split: str, path: Path) -> None:
    """Write a picture: success in training over each axis, a line a run, and held-out success with
    its interval.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # loads for half a second
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    *learning, held_out = figure.subplots(1, len(AXES) + 1)
    colors = [f"C{number % 10}" for number in range(len(comparison.groups))]
    for axis, panel in zip(AXES, learning, strict=True):
        for group, color in zip(comparison.groups, colors, strict=True):
            for number, curve in enumerate(curves[group.label]):
                label = group.label if number == 0 else None
                panel.plot(curve.reached[axis], curve.success, color=color, alpha=0.8, label=label)
        panel.set_xlabel(axis)
        panel.set_ylim(0, 1)
    learning[0].set_ylabel("success in training")
    learning[0].legend(fontsize="small")

    for number, (group, color) in enumerate(zip(comparison.groups, colors, strict=True)):
        held_out.errorbar([number], [group.success.value], _reach(group), fmt="o", color=color)
    held_out.set_xticks(
        range(len(comparison.groups)),
        [group.label.replace(" ", "\n") for group in comparison.groups],
        fontsize="small",
    )
    held_out.set_xlim(-0.5, len(comparison.groups) - 0.5)
    held_out.set_ylabel(f"{split} problems solved, 95 % interval")
    held_out.set_ylim(0, 1)
    figure.suptitle(comparison.sentence, fontsize="medium", wrap=True)
    figure.savefig(path, dpi=120, format="png")


def _reach(group: Group) -> list[list[float]]:
    """How far the interval goes below and above, as matplotlib takes it."""
    low, high = group.success.interval
    return [[group.success.value - low], [high - group.success.value]]


def _left_out(comparison: RunComparison) -> str:
    count = comparison.left_out
    return f", {count} left out: an episode has no score" if count else ""
