"""A person decides whether a night's policy becomes the champion: the flow run waits, paused, with
a form.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Event, Thread
from typing import Any
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import FlowPauseTimeout
from prefect.flow_runs import pause_flow_run, resume_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from prefect.states import Completed, Running
from pydantic import Field

from agentfly_core.config.site import Site
from agentfly_core.reports.nights.night_ledger import Champion, NightEntry, NightLedger
from agentfly_core.system.formats.text import fault
from flows.flow_run import experiment_of_flow
from flows.nights.aliases import report_aliases
from flows.nights.asking import open_question
from flows.nights.events import write_and_tell
from flows.nights.report import report_night
from flows.parameters import Days, ExperimentName, RunOfNight, SiteName, StoreUri
from flows.run_pages import artifact_key

SECONDS_OF_A_DAY = 86400
LOOK = 2
SPARE = 3600
"""Seconds by which Prefect's own limit of the pause lies behind ours: a pause that Prefect ends is
a failure, and no answer is none.
"""
logger = logging.getLogger(__name__)


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
    loaded = experiment_of_flow(experiment, [], site, store)
    ledger = NightLedger(loaded.store, loaded.name)
    question = open_question(ledger.read(), run)
    if question is None:
        return Completed(name="Decided", message=f"The policy of {run!r} awaits no approval.")
    decision = _answer(loaded.name, question, days)
    if open_question(ledger.read(), run) is None:
        return Completed(name="Decided", message="It was decided on the command line meanwhile.")
    ended = _carried_out(ledger, loaded.site, question, decision)
    report_night(ledger, loaded.site, run)
    return ended


def _answer(experiment: str, question: NightEntry, days: float) -> Decision:
    """The person's decision; after this many days this flow run answers itself, with no."""
    this, seconds, answered = UUID(flow_run.id), days * SECONDS_OF_A_DAY, Event()
    silence = Decision(approve=False, reason=f"Nobody answered within {days:g} days.")
    refusing = Thread(target=_refuse, args=(this, silence, seconds, answered), daemon=True)
    refusing.start()
    text = (
        f"### {question.night}\n{question.why}\n\nIf you approve it, the next night starts from "
        f"it. [The report](/artifacts/key/{artifact_key('night', experiment)}) has ten episodes."
    )
    form = Decision.with_initial_data(description=text)
    try:
        return pause_flow_run(form, timeout=int(seconds) + SPARE, poll_interval=LOOK)
    except FlowPauseTimeout:
        with get_client(sync_client=True) as client:  # or Prefect lets it end only as Failed
            client.set_flow_run_state(this, Running(), force=True)
        return silence
    finally:
        answered.set()


def _refuse(this: UUID, silence: Decision, seconds: float, answered: Event) -> None:
    """Answer no after this many seconds, and try again until an answer was taken."""
    while not answered.wait(seconds):
        try:
            resume_flow_run(this, run_input=silence.model_dump())
            return
        except Exception as error:  # the server is down, or a person answers at this moment
            logger.info("The answer no was not taken: %s", fault(error))
        seconds = LOOK


def _carried_out(
    ledger: NightLedger, site: Site, question: NightEntry, decision: Decision
) -> State[None]:
    """Write down, report and tell what was decided; a policy that was compared with an earlier
    champion is not promoted.
    """
    details: Mapping[str, Any] = question.details
    run, champion = question.night, ledger.champion()
    outdated = champion is not None and champion.to_json() != details["champion"]
    if decision.approve and not outdated:
        why = decision.reason or "A person approved it."
        write_and_tell(ledger, run, "promoted", why, Champion.from_json(details["challenger"]))
        report_aliases(ledger, site)
        return Completed(name="Promoted", message=why)
    why = decision.reason or "A person refused it."
    if decision.approve and champion:
        earlier = f"It was compared with an earlier champion than {champion.reference}"
        why = f"{earlier}: agentfly promote {run}"
    write_and_tell(ledger, run, "not_approved", why)
    return Completed(name="NotApproved", message=why)
