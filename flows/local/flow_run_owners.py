"""Which process a flow run belongs to, and marking flow runs Crashed whose process is dead."""

from __future__ import annotations

import json
import logging
from contextlib import suppress

from agentfly_core.system.formats import strict_json
from agentfly_core.system.process import Owner
from flows.local.prefect_server import answers, crash_abandoned, reach
from flows.local.state_dirs import Places

LABEL = "agentfly.process"
logger = logging.getLogger(__name__)


def sign() -> None:
    """Label the current flow run with this process; nothing outside a flow run.

    A process id alone could belong to another process by the time that it is looked up.
    """
    from prefect.client.orchestration import get_client
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    try:
        with get_client(sync_client=True) as client:
            owner = json.dumps(Owner.current().to_json())
            client.update_flow_run_labels(context.flow_run.id, {LABEL: owner})
    except Exception:  # then a heartbeat that stays away shows its death, minutes later
        logger.warning("Prefect did not note which process this flow run has.", exc_info=True)


def crash_dead() -> list[str]:
    """Mark Crashed all flow runs, running, cancelling or waiting for input, whose process on this
    machine is dead.

    Returns their ids. Those of other machines, and those that nobody signed, stay as they are: a
    process elsewhere may be alive.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType

    types = [StateType.RUNNING, StateType.CANCELLING, StateType.PAUSED]
    wanted = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=types)))
    dead, page = [], 0
    with get_client(sync_client=True) as client:
        while runs := client.read_flow_runs(flow_run_filter=wanted, offset=page):
            for run in runs:
                label = run.labels.get(LABEL)
                with suppress(ValueError):  # it was signed by something else
                    if isinstance(label, str) and not Owner.of(strict_json.parse(label)).alive:
                        dead.append(str(run.id))
            page += len(runs)
    return crash_abandoned(dead, "Its process was killed. Run it again: what is on disk is reused.")


def tidy(places: Places) -> None:
    """Print which flow runs are marked Crashed since their process is dead; never raises because of
    Prefect.
    """
    if not (url := reach(places)) or not answers(url):
        return
    try:
        for flow_run in crash_dead():
            print(f"The flow run {flow_run} is marked Crashed: its process is dead.", flush=True)
    except Exception:  # the worker starts all the same, and says itself what Prefect refuses
        logger.warning("Flow runs of dead processes could not be looked for.", exc_info=True)
