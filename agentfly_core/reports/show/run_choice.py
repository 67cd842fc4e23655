"""Which runs are listed, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

from agentfly_core.config.loading import override
from agentfly_core.runs.listing import Listed, Unreadable, differences
from agentfly_core.system.formats.json_value import JSON

Sorting = Literal["name", "time", "success", "step"]
ListedRun = Listed | Unreadable


def only(runs: Sequence[ListedRun], wanted: Sequence[str]) -> list[ListedRun]:
    """The runs for which all conditions hold: `experiment=quickstart`, `state=stopped`,
    `tag=baseline`, a setting such as `update.learning_rate=3e-4`, or a text of their line.

    Raises ValueError for a key that no run has; a damaged run has no settings.
    """
    kept = list(runs)
    for condition in wanted:
        if "=" in condition:
            key, value = override(condition)
            settings = {name for run in runs if isinstance(run, Listed) for name in run.settings}
            if runs and key not in {"tag", "experiment", "state", "name", *settings}:
                raise ValueError(
                    f"--filter: no run has {key!r}; expected experiment, state, tag, name or a "
                    "setting such as update.learning_rate."
                )
            kept = [run for run in kept if run.has(key, value)]
        else:
            kept = [run for run in kept if condition.casefold() in run.words.casefold()]
    return kept


def ordered(runs: Sequence[ListedRun], by: Sorting) -> list[ListedRun]:
    """Sorted by name, or with the newest, the best or the furthest first; damaged ones last."""
    whole = sorted((run for run in runs if isinstance(run, Listed)), key=attrgetter("name"))
    if by == "time":
        whole.sort(key=attrgetter("created_ms"), reverse=True)
    if by == "success":
        whole.sort(key=lambda run: -1.0 if run.success is None else run.success, reverse=True)
    if by == "step":
        whole.sort(key=attrgetter("step"), reverse=True)
    damaged = [run for run in runs if isinstance(run, Unreadable)]
    everything: list[ListedRun] = [*whole, *damaged]
    return sorted(everything, key=attrgetter("name")) if by == "name" else everything


def as_json(runs: Sequence[ListedRun]) -> dict[str, JSON]:
    """The runs for programs; `differs` has what the listed ones differ in."""
    differing = differences([run for run in runs if isinstance(run, Listed)])
    rows: list[JSON] = []
    for run in runs:
        if isinstance(run, Unreadable):
            rows.append({"name": run.name, "state": "damaged", "fault": run.fault})
            continue
        rows.append(
            {
                "name": run.name,
                "experiment": run.experiment,
                "state": run.state,
                "owner": run.owner or None,
                "step": run.step,
                "steps": run.steps,
                "success": run.success,
                "created_ms": run.created_ms,
                "tags": list(run.tags),
                "differs": differing[run.name],
                "changed": dict(run.changed),
                "command": run.command,
            }
        )
    return {"runs": rows}
