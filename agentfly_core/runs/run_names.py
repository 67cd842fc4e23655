"""Runs by shorter names, and by their settings."""

from __future__ import annotations

from collections.abc import Mapping

from agentfly_core.experiment.run_layout import run_records
from agentfly_core.records.run_record import RunRecord
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON


def run_named(store: Store, reference: str) -> str:
    """Return the full name of a run, of the newest run of an experiment, or of a unique prefix:
    `quickstart@7` becomes `quickstart-1a2b3c4d@7`. Other names stay as they are.

    Raises ValueError for a prefix of several runs.
    """
    name, at, step = reference.removeprefix("run:").partition("@")
    names = store.names("runs")
    if not name or name in names:
        return f"{name}{at}{step}"
    of_experiment = [run for run in run_records(store) if run["experiment"] == name]
    if of_experiment:
        return f"{max(of_experiment, key=lambda run: run['created_ms'])['name']}{at}{step}"
    matches = [run for run in names if run.startswith(name)]
    if len(matches) > 1:
        raise ValueError(f"{name} is the beginning of several runs: {', '.join(matches)}.")
    return f"{matches[0] if matches else name}{at}{step}"


def shorter_run(store: Store, settings: Mapping[str, JSON]) -> RunRecord | None:
    """Return the newest run with these settings but fewer steps."""
    same = [
        run
        for run in run_records(store)
        if {**run["settings"], "steps": 0} == {**settings, "steps": 0}
        and int(str(run["settings"]["steps"])) < int(str(settings["steps"]))
    ]
    return max(same, key=lambda run: run["created_ms"], default=None)
