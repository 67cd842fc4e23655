"""Policies that await approval: a flow run of `promote` asks a person about each."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from agentfly_core.reports.nights.night_ledger import NightEntry, NightHistory, NightLedger
from agentfly_core.system.formats.text import fault
from flows.local.flow_run_owners import crash_dead

APPROVAL = "promote/promote"
WAITING = ["SCHEDULED", "PENDING", "RUNNING", "PAUSED"]
logger = logging.getLogger(__name__)


def open_question(history: NightHistory, night: str) -> NightEntry | None:
    """Return the entry by which a night's policy awaits approval; None once that is decided."""
    last = history.last(night, "awaits_approval", "promoted", "not_approved", "kept")
    return last if last and last.event == "awaits_approval" else None


def ask_people(ledger: NightLedger, site: str) -> None:
    """Start a flow run of `promote` for each open question that has none.

    Never raises: a refusal is logged, and the next night asks again.
    """
    from prefect.deployments import run_deployment

    history = ledger.read()
    for night in sorted({entry.night for entry in history.entries}):
        if open_question(history, night) is None:
            continue
        question = {"experiment": ledger.experiment, "run": night}
        question |= {"site": site, "store": ledger.store.uri}
        try:
            crash_dead()
            if not _waits(question):
                run_deployment(APPROVAL, parameters=question, timeout=0, as_subflow=False)
        except Exception as error:  # the night is played all the same
            logger.warning(
                "Nobody is asked in the Prefect UI about the policy of %s: %s. The next night asks "
                "again. If %s is not deployed: python -m flows.deploy. Or decide with: agentfly "
                "promote %s",
                *(night, fault(error), APPROVAL, night),
            )


def _waits(question: Mapping[str, str]) -> bool:
    """Return whether a flow run with these parameters waits for an answer."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter

    with get_client(sync_client=True) as client:
        deployment = str(client.read_deployment_by_name(APPROVAL).id)
        runs = client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": WAITING}}}),
            deployment_filter=DeploymentFilter.model_validate({"id": {"any_": [deployment]}}),
        )
    return any(question.items() <= flow_run.parameters.items() for flow_run in runs)
