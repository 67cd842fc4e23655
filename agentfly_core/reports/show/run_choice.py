"""Filters, order and JSON of listed runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

from agentfly_core.config.loading import override
from agentfly_core.runs.listing import Listed, Unreadable, differences
from agentfly_core.system.formats.json_value import JSON

Sorting = Literal["name", "time", "success", "step"]
ListedRun = Listed | Unreadable
FIGURES = (
    "name",
    "experiment",
    "state",
    "step",
    "steps",
    "success",
    "created_ms",
    "command",
)


def only(runs: Sequence[ListedRun], wanted: Sequence[str]) -> list[ListedRun]:
    """Runs that pass all conditions: `state=stopped`, `update.learning_rate=3e-4`, or any text."""
    kept = list(runs)
    for condition in wanted:
        if "=" in condition:
            key, value = override(condition)
            kept = [run for run in kept if isinstance(run, Listed) and run.has(key, value)]
        else:
            kept = [run for run in kept if condition.casefold() in run.words.casefold()]
    return kept


def ordered(runs: Sequence[ListedRun], by: Sorting) -> list[ListedRun]:
    """Sort by name, or newest, best or furthest first with damaged runs last."""
    by_name = sorted(runs, key=attrgetter("name"))
    if by == "name":
        return by_name

    def rank(run: ListedRun) -> float:
        if isinstance(run, Unreadable):
            return math.inf
        figures = {"time": run.created_ms, "success": run.success, "step": run.step}
        figure = figures[by]
        return 1.0 if figure is None else -figure

    return sorted(by_name, key=rank)


def as_json(runs: Sequence[ListedRun]) -> dict[str, JSON]:
    """Runs as JSON; `differs` holds the settings in which they differ."""
    differing = differences([run for run in runs if isinstance(run, Listed)])
    rows: list[JSON] = []
    for run in runs:
        if isinstance(run, Unreadable):
            rows.append({"name": run.name, "state": "damaged", "fault": run.fault})
            continue
        figures = {name: getattr(run, name) for name in FIGURES}
        more = {"owner": run.owner or None, "tags": list(run.tags), "changed": dict(run.changed)}
        more["edited"] = list(run.edited)
        rows.append({**figures, **more, "differs": differing[run.name]})
    return {"runs": rows}
