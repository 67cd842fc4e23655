"""Nightly training: each night new problems, from the champion, and only a better policy becomes
the champion.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from prefect import flow, get_run_logger, runtime

from agentfly_core.artifacts.lock import Locked
from agentfly_core.formats.text import fault
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.night_ledger import NightLedger
from agentfly_core.reports.night_plan import (
    PREFIX,
    beginning,
    first_changes,
    name_of_night,
    recorded_changes,
    undone,
)
from agentfly_core.runs.context import ExperimentContext
from flows.deadline import Deadline
from flows.local.devices import devices
from flows.nights.decision import decide
from flows.nights.events import tell
from flows.nights.missed import note_missed
from flows.nights.ping import ping
from flows.nights.space import require_space_for_night
from flows.parameters import (
    Approval,
    Attempts,
    ExperimentName,
    Hours,
    NightDate,
    Overrides,
    SiteName,
    StoreUri,
)
from flows.train import train
from flows.triggered import context_of_flow
from tasks.prepare import prepare


def _title() -> str:
    return PREFIX + str(runtime.flow_run.parameters["date"] or _scheduled())


@flow(name="nightly", flow_run_name=_title)
def nightly(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    date: NightDate = None,
    site: SiteName = "local",
    store: StoreUri = "",
    hours: Hours = None,
    attempts: Attempts = 3,
    approval: Approval = False,
) -> Summary:
    """Train the run nightly-<date> on the problems behind those of the last night, and promote its
    policy if it is better; finish interrupted nights first, or give them up.
    """
    context = context_of_flow(experiment, overrides, site, store)
    until, wanted = Deadline.after(hours), list(overrides)
    here = Nights(NightLedger(context.store, context.experiment), context, wanted, until, approval)
    tonight = name_of_night(context, date or _scheduled())
    try:
        with devices(context.site, context.site.gpus, f"the run {tonight}"):
            note_missed(here.ledger, date or _scheduled())
            for night in undone(context, here.ledger, tonight):
                here.finish(night, attempts)
            summary = here.play(tonight)
    except BaseException as error:
        tell("crashed", tonight, context.experiment, fault(error))
        ping(context.site.ping_url_env, success=False)
        raise
    ping(context.site.ping_url_env, success=True)
    return summary


@dataclass(frozen=True)
class Nights:
    """An experiment's nights as one flow run plays them: their ledger, what differs from the
    experiment's file, until when, and whether a person approves.
    """

    ledger: NightLedger
    context: ExperimentContext
    overrides: list[str]
    until: Deadline
    approval: bool

    def finish(self, night: str, attempts: int) -> None:
        """Continue a night until it is finished, or give it up after so many attempts in all."""
        why = f"It was begun {attempts} times."
        while self.ledger.sittings(night) < attempts:
            try:
                self.play(night)
                return
            except Locked:  # somebody is finishing it
                raise
            except Exception as error:  # whatever keeps it from being finished, tonight can train
                get_run_logger().exception("The run %s could not be finished.", night)
                why = f"It was tried {attempts} times; at last: {fault(error)}"
        self.ledger.append(night, "given_up", why)
        tell("given_up", night, self.context.experiment, why)

    def play(self, night: str) -> Summary:
        """Train a night from where it stands to its end, and decide about its policy."""
        begun = self.ledger.last(night, "began")
        if changes := recorded_changes(self.context, night):
            details = begun.details if begun else {}
        else:
            begins = beginning(self.context, self.ledger, prepare(self.context))
            changes, details = (
                first_changes(self.context, self.ledger, begins.night),
                begins.to_json(),
            )
        where = (self.context.site.name, self.context.store.uri)
        overrides = [*self.overrides, *changes]
        context = context_of_flow(self.context.experiment, overrides, *where)
        require_space_for_night(context, night)
        self.ledger.append(night, "began", **details)
        summary = train(self.context.experiment, night, overrides, False, *where, self.until.hours)
        why = f"Success was {summary['success_before']:.1%} and is {summary['success_after']:.1%}."
        self.ledger.append(night, "finished", why)
        decide(context, self.ledger, night, self.approval)
        return summary


def _scheduled() -> datetime.date:
    start: datetime.datetime = runtime.flow_run.scheduled_start_time
    return start.astimezone().date()
