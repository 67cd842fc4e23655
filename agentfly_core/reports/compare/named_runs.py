"""Comparison of runs by the names that a person gives."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.reports.compare.comparison_view import Curves
from agentfly_core.reports.compare.learning_curves import curve
from agentfly_core.reports.compare.run_comparison import RunComparison, compared
from agentfly_core.reports.compare.sweep import runs_named
from agentfly_core.reports.compare.tried_policy import tried
from agentfly_core.runs.listing import run_named
from agentfly_core.store.store import Store


def compared_runs(
    store: Store, references: Sequence[str], split: str, against: str
) -> tuple[RunComparison, Curves]:
    """Compare runs and sweeps on a split, `against` first; returns their training curves, too.

    Raises ValueError for runs that cannot be compared.
    """
    names = [run_named(store, name) for name in runs_named(store, references)]
    if against:
        base = run_named(store, against)
        first = [name for name in names if base in (name, name.partition("@")[0])]
        if not first:
            raise ValueError(f"--against: got {against!r}, expected one of {', '.join(names)}.")
        names = list(dict.fromkeys([*first, *names]))
    comparison = compared([tried(store, name, split) for name in names])
    curves = {
        group.label: [curve(store, policy.run, policy.step) for policy in group.policies]
        for group in comparison.groups
    }
    return comparison, curves
