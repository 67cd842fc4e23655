"""Filters, order and JSON of listed runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from agentfly_core.config.loading import override
from agentfly_core.runs.listing import FIELDS, STYLES, Listed, Unreadable, differences, typed
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import did_you_mean

Sorting = Literal["name", "time", "success", "step"]
ListedRun = Listed | Unreadable


def only(runs: Sequence[ListedRun], wanted: Sequence[str]) -> list[ListedRun]:
    """Runs that pass all conditions: `state=stopped`, `update.learning_rate=3e-4`, or any text.

    Raises ValueError for a key or a value that none of the runs has.
    """
    kept, readable = list(runs), [run for run in runs if isinstance(run, Listed)]
    for condition in wanted:
        if "=" in condition:
            key, value = override(condition)
            _require_existing(readable, key, value)
            kept = [run for run in kept if isinstance(run, Listed) and run.has(key, value)]
        else:
            kept = [run for run in kept if condition.casefold() in run.words.casefold()]
    return kept


def _require_existing(runs: Sequence[Listed], key: str, value: JSON) -> None:
    if not runs or (key == "state" and value in STYLES) or any(run.has(key, value) for run in runs):
        return
    if values := {typed(value) for run in runs for value in run.values(key)}:
        hint = did_you_mean(typed(value), sorted(values))
        raise ValueError(f"--filter: no run has {key}={typed(value)}.{hint}")
    keys = sorted({*FIELDS, *(key for run in runs for key in run.settings)})
    raise ValueError(f"--filter: no run has {key!r}.{did_you_mean(key, keys)}")


def ordered(runs: Sequence[ListedRun], by: Sorting) -> list[ListedRun]:
    """Sort by name, or newest, best or furthest first with damaged runs last."""

    def rank(run: ListedRun) -> tuple[float, str]:
        if isinstance(run, Unreadable):
            return (0.0 if by == "name" else math.inf), run.name
        figures = {"time": run.created_ms, "success": run.success, "step": run.step, "name": 0}
        figure = figures[by]
        return (1.0 if figure is None else -figure), run.name

    return sorted(runs, key=rank)


def as_json(runs: Sequence[ListedRun]) -> dict[str, JSON]:
    """Runs as JSON; `differs` holds the settings in which they differ."""
    differing = differences(runs)
    rows: list[JSON] = []
    for run in runs:
        if isinstance(run, Unreadable):
            rows.append({"name": run.name, "state": "damaged", "fault": run.fault})
            continue
        fields = {name: value for name, value in asdict(run).items() if name != "settings"}
        rows.append({**fields, "owner": run.owner or None, "differs": differing[run.name]})
    return {"runs": rows}
