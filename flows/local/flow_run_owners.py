"""Label flow runs with the identity of their process, to find flow runs of killed processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentfly_core.system.formats.text import logged
from agentfly_core.system.process import mark_alive, own_mark

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State

LABEL = "agentfly.process"
AT_WORK = ["RUNNING", "CANCELLING", "PAUSED"]
KILLED = (
    "The process of this flow run was killed. Run the flow again: finished work on disk is reused."
)


def sign() -> None:
    """Label the current flow run with the identity of this process.

    Outside of a flow run, do nothing.
    """
    from prefect.client.orchestration import get_client
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    # the label is optional: Prefect also notices a dead process, minutes later
    failure = "Prefect could not store the label with this flow run's process"
    with logged(failure), get_client(sync_client=True) as client:
        client.update_flow_run_labels(context.flow_run.id, {LABEL: f"process-{own_mark()}"})


def crash_dead() -> list[str]:
    """Mark the flow runs of dead processes as Crashed. Return the ids of these flow runs.

    Flow runs of other machines are not changed, because their processes may be alive. For the same
    reason, flow runs without the label of a process are not changed.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Crashed

    at_work = FlowRunFilter.model_validate({"state": {"type": {"any_": AT_WORK}}})
    ended: State[None] = Crashed(message=KILLED)
    crashed: list[str] = []
    failure = "Prefect could not list flow runs, so flow runs of dead processes are not marked"
    with logged(failure), get_client(sync_client=True) as client:
        for flow_run in filter(_is_dead, client.read_flow_runs(flow_run_filter=at_work)):
            client.set_flow_run_state(flow_run.id, ended, force=True)
            crashed.append(str(flow_run.id))
            named = f"{flow_run.name} ({flow_run.id})"
            print(f"The flow run {named} is marked Crashed: its process is dead.")
    return crashed


def _is_dead(flow_run: FlowRun) -> bool:
    suspended = flow_run.state and flow_run.state.state_details.pause_reschedule
    # a suspended flow run needs no process
    return not suspended and not mark_alive(str(flow_run.labels.get(LABEL)))
