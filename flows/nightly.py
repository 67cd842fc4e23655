"""Nightly training: each night goes on from the policy of the night before."""

from __future__ import annotations

import datetime
import json
from contextlib import suppress
from typing import Any

from prefect import flow, get_run_logger, runtime

from agentfly_core.config.experiment import Science
from agentfly_core.formats.checksummed_json import Damaged
from agentfly_core.runs.run import Lab, record_of, summary_of
from flows.local.devices import devices
from flows.parameters import ExperimentName, Night, Overrides, SiteName, StoreUri
from flows.train import train
from flows.triggered import lab_of_flow

PREFIX = "nightly-"


def _title() -> str:
    return PREFIX + str(runtime.flow_run.parameters["date"] or _scheduled())


@flow(name="nightly", flow_run_name=_title)
def nightly(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    date: Night = None,
    site: SiteName = "local",
    store: StoreUri = "",
) -> dict[str, Any]:
    """Train the run nightly-<date>, after finishing nights that were interrupted; one that cannot be is told of."""
    lab = lab_of_flow(experiment, overrides, site, store)
    tonight = name_of_night(lab, date or _scheduled())

    def trained(night: str) -> dict[str, Any]:
        changes = recorded_changes(lab, night) or first_changes(lab, night)
        return train(experiment, night, [*overrides, *changes], False, site, store)

    with devices(lab.site, lab.site.gpus, f"the run {tonight}"):
        for night in unfinished(lab, before=tonight):
            try:
                trained(night)
            except Exception:  # whatever it is that a past night cannot go on for, tonight can
                get_run_logger().exception(
                    "The run %s could not be finished; `agentfly list` shows how to go on with it.", night
                )
        return trained(tonight)


def name_of_night(lab: Lab, date: datetime.date) -> str:
    """nightly-<date>, with the experiment's name behind it when another experiment has that night's name already."""
    record = record_of(lab.store, f"{PREFIX}{date}")
    ours = record is None or record["experiment"] == lab.experiment
    return f"{PREFIX}{date}" if ours else f"{PREFIX}{date}-{lab.experiment}"


def unfinished(lab: Lab, before: str) -> list[str]:
    """Earlier nights of the experiment that have not done all their steps, oldest first."""
    return [night for night in _nights(lab, before) if not _finished(lab, night)]


def first_changes(lab: Lab, night: str) -> list[str]:
    """What a new night differs in: it starts from the last finished night's final policy, if there is one."""
    finished = [earlier for earlier in _nights(lab, night) if _finished(lab, earlier)]
    return [f"model=run:{finished[-1]}", "warm_start=null"] if finished else []


def recorded_changes(lab: Lab, night: str) -> list[str]:
    """What a night that was started already was started with, whatever the experiment's file says today."""
    record = record_of(lab.store, night)
    if record is None:
        return []
    then, today = Science.restored(record["science"]), lab.science.model_dump(mode="json")
    return [f"{key}={json.dumps(value)}" for key, value in then.items() if value != today.get(key)]


def _nights(lab: Lab, before: str) -> list[str]:
    names = [name for name in lab.store.names("runs") if name.startswith(PREFIX) and name < before]
    return [name for name in names if _is_ours(lab, name)]


def _is_ours(lab: Lab, night: str) -> bool:
    try:
        record = record_of(lab.store, night)
    except Damaged:  # it is told of when it is to be finished
        return True
    return record is not None and record["experiment"] == lab.experiment


def _finished(lab: Lab, night: str) -> bool:
    with suppress(Damaged):
        summary, record = summary_of(lab.store, night), record_of(lab.store, night)
        return bool(summary and record and summary["steps"] == record["science"]["steps"])
    return False


def _scheduled() -> datetime.date:
    start: datetime.datetime = runtime.flow_run.scheduled_start_time
    return start.astimezone().date()
