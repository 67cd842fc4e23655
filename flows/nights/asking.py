"""Policies that await approval: a flow run of the deployment `promote` asks a person about each."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentfly_core.reports.nights.night_ledger import NightEntry, NightHistory, NightLedger
from agentfly_core.system.formats.text import fault
from flows.local.flow_run_owners import crash_dead

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

APPROVAL = "promote/promote"
logger = logging.getLogger(__name__)


def open_question(history: NightHistory, night: str) -> NightEntry | None:
    """The entry by which a night's policy awaits approval; None where that is decided."""
    last = history.last(night, "awaits_approval", "promoted", "not_approved", "kept")
    return last if last and last.event == "awaits_approval" else None


def ask_again(ledger: NightLedger, site: str) -> None:
    """Ask about every policy that awaits approval and has no flow run that waits for the answer."""
    history = ledger.read()
    nights = {entry.night for entry in history.entries if entry.event == "awaits_approval"}
    for night in sorted(nights):
        if open_question(history, night):
            ask(ledger, site, night)


def ask(ledger: NightLedger, site: str, night: str) -> None:
    """Start a flow run of `promote` for a night, unless one is there whose process is alive.

    Never raises: what Prefect refuses is logged, and the next night asks again.
    """
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment

    given = {"experiment": ledger.experiment, "run": night}
    given |= {"site": site, "store": ledger.store.uri}
    try:
        crash_dead()
        with get_client(sync_client=True) as client:
            waits = _waits(client, given)
        if not waits:
            run_deployment(APPROVAL, parameters=given, timeout=0, as_subflow=False)
    except Exception as error:  # a night is played all the same
        logger.warning(
            "Nobody is asked in the Prefect UI about the policy of %s: %s. The next night asks "
            "again. If %s is not deployed: python -m flows.deploy. Or decide with: "
            "agentfly promote %s",
            night,
            fault(error),
            APPROVAL,
            night,
        )


def _waits(client: SyncPrefectClient, given: Mapping[str, str]) -> bool:
    """Whether a flow run with these parameters waits for an answer, or is about to."""
    from prefect.client.schemas.filters import (
        DeploymentFilter,
        DeploymentFilterId,
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType

    types = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED]
    deployment = client.read_deployment_by_name(APPROVAL).id
    runs = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=types))
        ),
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment])),
    )
    return any(given.items() <= flow_run.parameters.items() for flow_run in runs)
