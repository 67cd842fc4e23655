"""Processes of flow runs, and flow runs of killed processes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentfly_core.system.formats import strict_json
from agentfly_core.system.process import Owner

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State

LABEL = "agentfly.process"
KILLED = "Its process was killed. Run it again: what is on disk is reused."
logger = logging.getLogger(__name__)


def sign() -> None:
    """Label the current flow run with this process; does nothing outside a flow run."""
    from prefect.client.orchestration import get_client
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    try:
        with get_client(sync_client=True) as client:
            owner = json.dumps(Owner.current().to_json())
            client.update_flow_run_labels(context.flow_run.id, {LABEL: owner})
    except Exception:  # then a missing heartbeat shows its death, minutes later
        logger.warning("Prefect did not note which process this flow run has.", exc_info=True)


def crash_abandoned(flow_runs: Iterable[str]) -> list[str]:
    """Mark flow runs of dead processes Crashed; returns the ids that were at work."""
    return _crash({"id": {"any_": list(flow_runs)}}, lambda _: True)


def crash_dead() -> list[str]:
    """Mark flow runs of dead processes of this machine Crashed; returns their ids.

    Flow runs of other machines, and those without a label, stay: their process may be alive.
    """
    try:
        crashed = _crash({}, _is_dead)
    except Exception:  # Prefect raises many types; work starts without this cleanup
        logger.warning("Flow runs of dead processes could not be looked for.", exc_info=True)
        return []
    for flow_run in crashed:
        print(f"The flow run {flow_run} is marked Crashed: its process is dead.", flush=True)
    return crashed


def _is_dead(flow_run: FlowRun) -> bool:
    with suppress(ValueError):  # something else signed it
        return not Owner.of(strict_json.parse(str(flow_run.labels.get(LABEL)))).alive
    return False


def _crash(chosen: dict[str, Any], dead: Callable[[FlowRun], bool]) -> list[str]:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Crashed

    at_work = {"state": {"type": {"any_": ["RUNNING", "CANCELLING", "PAUSED"]}}}
    crashed: list[str] = []
    with get_client(sync_client=True) as client:
        wanted = FlowRunFilter.model_validate(chosen | at_work)
        runs: list[FlowRun] = []
        while page := client.read_flow_runs(flow_run_filter=wanted, offset=len(runs)):
            runs += page
        for run in runs:  # only now: marking one moves the pages
            is_suspended = run.state and run.state.state_details.pause_reschedule
            if not is_suspended and dead(run):  # suspended ones need no process
                ended: State[None] = Crashed(message=KILLED)
                client.set_flow_run_state(run.id, ended, force=True)
                crashed.append(str(run.id))
    return crashed
