"""Nightly training: each night continues from the policy of the night before."""

from __future__ import annotations

import datetime
import json
from contextlib import suppress

from prefect import flow, get_run_logger, runtime

from agentfly_core.config.experiment import Science
from agentfly_core.formats.checksummed_json import Damaged
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.context import ExperimentContext
from agentfly_core.runs.run import record_of, summary_of
from flows.local.devices import devices
from flows.parameters import ExperimentName, Night, Overrides, SiteName, StoreUri
from flows.train import train
from flows.triggered import context_of_flow

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
) -> Summary:
    """Train the run nightly-<date>, after finishing interrupted nights; logs one that cannot be."""
    context = context_of_flow(experiment, overrides, site, store)
    tonight = name_of_night(context, date or _scheduled())

    def trained(night: str) -> Summary:
        changes = recorded_changes(context, night) or first_changes(context, night)
        return train(experiment, night, [*overrides, *changes], False, site, store)

    with devices(context.site, context.site.gpus, f"the run {tonight}"):
        for night in unfinished(context, before=tonight):
            try:
                trained(night)
            except Exception:  # whatever keeps a past night from continuing, tonight can train
                get_run_logger().exception(
                    "The run %s could not be finished; `agentfly list` shows how to go on with it.",
                    night,
                )
        return trained(tonight)


def name_of_night(context: ExperimentContext, date: datetime.date) -> str:
    """nightly-<date>, with the experiment's name behind it when another experiment has that night's
    name already.
    """
    record = record_of(context.store, f"{PREFIX}{date}")
    ours = record is None or record["experiment"] == context.experiment
    return f"{PREFIX}{date}" if ours else f"{PREFIX}{date}-{context.experiment}"


def unfinished(context: ExperimentContext, before: str) -> list[str]:
    """Earlier nights of the experiment that have not done all their steps, oldest first."""
    return [night for night in _nights(context, before) if not _finished(context, night)]


def first_changes(context: ExperimentContext, night: str) -> list[str]:
    """What a new night differs in: it starts from the last finished night's final policy, if there
    is one.
    """
    finished = [earlier for earlier in _nights(context, night) if _finished(context, earlier)]
    return [f"model=run:{finished[-1]}", "warm_start=null"] if finished else []


def recorded_changes(context: ExperimentContext, night: str) -> list[str]:
    """What a night that was started already was started with, whatever the experiment's file says
    today.
    """
    record = record_of(context.store, night)
    if record is None:
        return []
    then, today = Science.restored(record["science"]), context.science.model_dump(mode="json")
    return [f"{key}={json.dumps(value)}" for key, value in then.items() if value != today.get(key)]


def _nights(context: ExperimentContext, before: str) -> list[str]:
    """The experiment's earlier nights, and those too damaged to say whose they are."""
    nights = []
    for name in context.store.names("runs"):
        if not name.startswith(PREFIX) or name >= before:
            continue
        try:
            record = record_of(context.store, name)
            ours = record is not None and record["experiment"] == context.experiment
        except Damaged:  # reported when it is to be finished
            ours = True
        if ours:
            nights.append(name)
    return nights


def _finished(context: ExperimentContext, night: str) -> bool:
    with suppress(Damaged):
        summary, record = summary_of(context.store, night), record_of(context.store, night)
        return bool(summary and record and summary["steps"] == record["science"]["steps"])
    return False


def _scheduled() -> datetime.date:
    start: datetime.datetime = runtime.flow_run.scheduled_start_time
    return start.astimezone().date()
