"""A person decides whether a night's policy becomes the champion: the flow run waits, paused, with
a form.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Timer
from uuid import UUID

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.flow_runs import pause_flow_run, resume_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from agentfly_core.reports.night_ledger import NightEntry, NightLedger
from agentfly_core.reports.nights import last_policy
from agentfly_core.runs.context import ExperimentContext
from flows.nights.aliases import report_aliases
from flows.nights.events import tell
from flows.nights.report import artifact_key, report_night
from flows.parameters import Days, ExperimentName, RunOfNight, SiteName, StoreUri
from flows.triggered import context_of_flow

SECONDS_OF_A_DAY = 86400
LOOK = 2
SPARE = 3600
"""Seconds by which Prefect's own limit of the pause lies behind ours: a pause that Prefect ends is
a failure, and no answer is none.
"""


class Decision(RunInput):
    """What the form asks."""

    approve: bool = Field(default=False, description="Whether its policy becomes the champion")
    reason: str = Field(default="", description="Why, for the ledger")


@flow(name="promote", flow_run_name="promote {run}")
def promote(
    experiment: ExperimentName = "quickstart",
    run: RunOfNight = "",
    site: SiteName = "local",
    store: StoreUri = "",
    days: Days = 3.0,
) -> State[None]:
    """Wait for a person to approve the policy of a night, without devices or the run's lock.

    Ends Completed, named Promoted, NotApproved or Decided (it had been already).
    """
    context = context_of_flow(experiment, [], site, store)
    ledger = NightLedger(context.store, context.experiment)
    asked = _open_question(ledger, run)
    if asked is None:
        return Completed(name="Decided", message=f"The policy of {run!r} awaits no approval.")
    decision = _answer(context.experiment, asked, days)
    if _open_question(ledger, run) is None:
        return Completed(name="Decided", message="It was decided on the command line meanwhile.")
    ended = _carried_out(context, ledger, asked, decision)
    report_night(context, run)
    return ended


def _open_question(ledger: NightLedger, run: str) -> NightEntry | None:
    last = ledger.last(run, "awaits_approval", "promoted", "not_approved", "kept")
    return last if last and last.event == "awaits_approval" else None


def _answer(experiment: str, asked: NightEntry, days: float) -> Decision:
    """The person's decision; after so many days this flow run answers itself, with no."""
    this, seconds = UUID(flow_run.id), days * SECONDS_OF_A_DAY
    silence = {"approve": False, "reason": f"Nobody answered within {days:g} days."}

    def answer_no() -> None:
        with suppress(RuntimeError):  # somebody answers at this moment
            resume_flow_run(this, run_input=silence)

    timer = Timer(seconds, answer_no)
    timer.daemon = True
    timer.start()
    try:
        text = (
            f"### {asked.night}\n{asked.why}\n\nIf you approve it, the next night starts from it. "
            f"[The report](/artifacts/key/{artifact_key(experiment)}) has ten episodes."
        )
        form = Decision.with_initial_data(description=text)
        return pause_flow_run(form, timeout=int(seconds) + SPARE, poll_interval=LOOK)
    finally:
        timer.cancel()


def _carried_out(
    context: ExperimentContext, ledger: NightLedger, asked: NightEntry, decision: Decision
) -> State[None]:
    """Write down, report and tell what was decided; a policy that was compared with an earlier
    champion is not promoted.
    """
    run, champion = asked.night, ledger.champion()
    outdated = champion is not None and champion.to_json() != asked.details["champion"]
    if decision.approve and not outdated:
        why = decision.reason or "A person approved it."
        ledger.append(run, "promoted", why, last_policy(context, run))
        report_aliases(context, ledger)
        tell("promoted", run, context.experiment, why)
        return Completed(name="Promoted", message=why)
    why = decision.reason or "A person refused it."
    if decision.approve:
        why = f"It was compared with an earlier champion than {champion}: agentfly promote {run}"
    ledger.append(run, "not_approved", why)
    tell("not_approved", run, context.experiment, why)
    return Completed(name="NotApproved", message=why)
