"""A person decides in a form of a paused flow run whether a night's policy becomes the champion."""

from __future__ import annotations

import asyncio
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.flow_runs import apause_flow_run
from prefect.input import RunInput, keyset_from_base_key, read_flow_run_input
from prefect.runtime import flow_run
from prefect.states import Completed, Running
from pydantic import Field

from agentfly_core.reports.nights.night_ledger import DECIDED, Judgement, NightEntry, NightLedger
from flows.flow_run import experiment_of_flow
from flows.nights.events import record
from flows.parameters import Days, ExperimentName, RunOfNight, SiteName, StoreUri
from flows.run_pages import artifact_key, report_aliases, report_night

SECONDS_OF_A_DAY = 86400
LOOK_S = 2
SPARE_S = 3600
"""Added to Prefect's own limit of the pause, which would end the flow run as Failed."""
KEY = "decision"
ANSWER = keyset_from_base_key(f"paused-{KEY}")["response"]
"""Where Prefect stores the answer."""


class Decision(RunInput):
    """The fields of the form: `Decision(approve=True, reason="It reads well.")`."""

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
    loaded = experiment_of_flow(experiment, [], site, store)
    ledger = NightLedger(loaded.store, loaded.name)
    question = open_question(ledger, run)
    if question is None:
        return Completed(name="Decided", message=f"The policy of {run!r} awaits no approval.")
    decision = _answer(loaded.name, question, days)
    if open_question(ledger, run) is None:
        return Completed(name="Decided", message="It was decided on the command line meanwhile.")
    ended = _record_decision(ledger, question, decision)
    report_aliases(ledger, loaded.site)
    report_night(ledger, loaded.site, run)
    return ended


def open_question(ledger: NightLedger, night: str) -> NightEntry | None:
    """Return the entry by which a night's policy awaits approval; None once that is decided."""
    last = ledger.read().last(night, *DECIDED)
    return last if last and last.event == "awaits_approval" else None


def _answer(experiment: str, question: NightEntry, days: float) -> Decision:
    """Pause the flow run with the form until a person answers; no answer in time is a no."""
    text = (
        f"### {question.night}\n{question.why}\n\nIf you approve it, the next night starts from "
        f"it. [The report](/artifacts/key/{artifact_key('night', experiment)}) has episodes."
    )
    try:
        return asyncio.run(_paused(text, days * SECONDS_OF_A_DAY))
    except TimeoutError:
        this = UUID(flow_run.id)
        with get_client(sync_client=True) as client:
            # a paused flow run could only end as Failed; now Prefect refuses later answers
            client.set_flow_run_state(this, Running(), force=True)
        if answer := read_flow_run_input(ANSWER, this):  # given since the last look
            return Decision.model_validate(answer)
        return Decision(reason=f"Nobody answered within {days:g} days.")


async def _paused(text: str, seconds: float) -> Decision:
    """Pause the flow run with the form; raises TimeoutError without an answer."""
    form = Decision.with_initial_data(description=text)
    async with asyncio.timeout(seconds):
        return await apause_flow_run(form, int(seconds) + SPARE_S, LOOK_S, KEY)


def _record_decision(ledger: NightLedger, question: NightEntry, decision: Decision) -> State[None]:
    """Record a decision; a policy that was compared with an earlier champion is not promoted."""
    judged, run, champion = question.details, question.night, ledger.read().champion
    assert isinstance(judged, Judgement), "the gate asks"
    if decision.approve and (champion == judged.champion or champion is None):
        why = decision.reason or "A person approved it."
        record(ledger, run, "promoted", why, judged.challenger)
        return Completed(name="Promoted", message=why)
    why = decision.reason or "A person refused it."
    if decision.approve and champion:
        earlier = f"It was compared with an earlier champion than {champion.reference}"
        why = f"{earlier}: agentfly promote {run}"
    record(ledger, run, "not_approved", why)
    return Completed(name="NotApproved", message=why)
