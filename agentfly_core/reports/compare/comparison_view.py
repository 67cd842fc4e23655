"""Show a comparison of runs in the terminal or as a picture, with training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from agentfly_core.reports.compare.run_comparison import (
    RunComparison,
    SeedGroup,
    compared,
    shown,
    tried,
)
from agentfly_core.reports.compare.run_steps import (
    AXES,
    NOTHING,
    Curve,
    Unbroken,
    curve,
    is_anything_solved,
    plotted,
)
from agentfly_core.reports.compare.seed_intervals import Estimate
from agentfly_core.reports.compare.sweep import runs_named
from agentfly_core.runs.listing import run_named
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SETTINGS_SHOWN = 6
LONGEST_SETTING = 40
Curves = Mapping[str, Sequence[Curve]]
"""The training curves of the runs of each group, by the label of the group."""


def compared_runs(
    store: Store, references: Sequence[str], split: str
) -> tuple[RunComparison, Curves]:
    """Compare runs on a split. Return the comparison, and the training curves of the runs.

    A reference is the name of a run, or `sweep:NAME` for all runs of a sweep. Runs that differ only
    in the seed form a group, and all groups are compared with the group of the first run. Raises
    ValueError if the runs cannot be compared.
    """
    names = dict.fromkeys(run_named(store, name) for name in runs_named(store, references))
    comparison = compared([tried(store, name, split) for name in names])
    curves = {
        group.label: [curve(store, policy.run, policy.step) for policy in group.policies]
        for group in comparison.groups
    }
    return comparison, curves


def view(comparison: RunComparison, curves: Curves, split: str) -> RenderableType:
    """Show a table, the training curves, and a sentence about the best group.

    The table has a row for each group. A group contains runs that differ only in the seed.
    """
    keys = [*comparison.groups[0].differs]
    more = []
    if further := len(keys[SETTINGS_SHOWN:]):
        more = [
            Text(f"They differ in {counted(further, 'more setting')}; --json lists all.", "dim")
        ]
    table = _table(comparison, keys[:SETTINGS_SHOWN], split)
    learning = [line for axis in AXES for line in ("", *plotted(curves, axis))]
    lines = map(Text, learning if is_anything_solved(curves) else ["", NOTHING])
    return Lines(Unbroken(table), *more, *lines, "", Text(comparison.sentence, "bold"))


def _table(comparison: RunComparison, keys: Sequence[str], split: str) -> Table:
    """Return a table with the held-out success of each group.

    It has a column for each setting in `keys`. The titles of these columns are wrapped at the dots.
    """
    numbers = ["seed", "solved", "95 % interval", "difference"][: 3 + bool(comparison.groups[1:])]
    count = comparison.left_out
    left_out = f", {count} left out: an episode has no score" if count else ""
    titles = ["run", *(key.replace(".", ".\n") for key in keys)]
    table = Table(
        *(Column(title, overflow="fold", max_width=LONGEST_SETTING) for title in titles),
        *(Column(title, justify="right", no_wrap=True) for title in numbers),
        title=f"{comparison.problems} {split} problems{left_out}",
        title_justify="left",
        show_edge=False,
    )
    for group in comparison.groups:
        low, high = group.success.interval
        cells = [
            group.runs,
            *(shown(group.differs[key]) for key in keys),
            ", ".join(str(policy.seed) for policy in group.policies),
            f"{group.success.value:.1%}",
            f"{low:.1%} to {high:.1%}",
            points(group.difference) if group.difference else "-",
        ]
        # with a single group there is no column of differences
        table.add_row(*cells[: len(table.columns)])
    return table


def points(difference: Estimate) -> str:
    """Format a difference of two shares with its interval, in percentage points:
    `+4.1 (+2.0 to +6.2)`.
    """
    low, high = difference.interval
    return f"{100 * difference.value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def draw(comparison: RunComparison, curves: Curves, split: str, path: Path) -> None:
    """Draw the success of the compared runs, and write the picture to `path`.

    The picture has the training curves of the runs, and the success of each group on the split
    `split`. A group contains runs that differ only in the seed.
    """
    # pyplot is not used, because it keeps global state and may open windows
    # imported here, because it takes half a second
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    *learning, held_out = figure.subplots(1, len(AXES) + 1)
    for axis, panel in zip(AXES, learning, strict=True):
        _draw_learning(panel, comparison.groups, curves, axis)
    learning[0].set_ylabel("success in training")
    learning[0].legend(fontsize="small")
    for number, group in enumerate(comparison.groups):
        value, (low, high) = group.success.value, group.success.interval
        reach = [[value - low], [high - value]]
        # matplotlib's cycle has ten colours
        held_out.errorbar([number], [value], reach, fmt="o", color=f"C{number % 10}")
    names = [group.label.replace(" ", "\n") for group in comparison.groups]
    held_out.set_xticks(range(len(names)), names, fontsize="small")
    held_out.set_xlim(-0.5, len(names) - 0.5)
    held_out.set_ylim(0, 1)
    held_out.set_ylabel(f"{split} problems solved, 95 % interval")
    figure.suptitle(comparison.sentence, fontsize="medium", wrap=True)
    figure.savefig(path, dpi=120, format="png")


def _draw_learning(panel: Axes, groups: Sequence[SeedGroup], curves: Curves, axis: str) -> None:
    """Draw the curve of each run in the colour of the run's group."""
    for color, group in enumerate(groups):
        for number, each in enumerate(curves[group.label]):
            label = group.label if number == 0 else None
            (line,) = panel.plot(each.reached[axis], each.success, marker=".", label=label)
            line.set(color=f"C{color % 10}", alpha=0.8)
    panel.set_xlabel(axis)
    panel.set_xlim(left=0)
    panel.locator_params(axis="x", integer=True)
    panel.set_ylim(0, 1)
    if not is_anything_solved(curves):
        panel.text(0.5, 0.5, NOTHING, transform=panel.transAxes, ha="center", wrap=True)
