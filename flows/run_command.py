"""The work of `agentfly train` and `agentfly fork` on a run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentfly_core.config.experiment import Fork
from agentfly_core.config.reference import run_step
from agentfly_core.experiment.run_layout import record_of
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.pipeline.loop.forking import forked
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import continuing, experiment_of, run_named
from agentfly_core.runs.run import known_run, refuse_if_open
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import fault
from flows.local.display import show_places
from flows.orchestration import orchestrated

logger = logging.getLogger(__name__)


def trained(
    request: RunRequest, arguments: Mapping[str, Any], command: Callable[[], str]
) -> Summary:
    """Run the flow; returns the summary of a run that ended before Prefect failed, too.

    `command` returns the command as typed.
    """
    name, store, site = request.name, request.experiment.store, request.experiment.site
    refuse_if_open(store, name)

    def again() -> str:
        record = record_of(store, name)
        return continuing(store, name, record) if record else command()

    with orchestrated(name, again) as places:
        from flows.train import train as flow

        show_places(places, site.mlflow_tracking_uri)
        try:
            summary: Summary = flow(**arguments, run=name)
        except Exception as error:  # Prefect's own, after the end of the run
            if (stored := request.finished()) is None:
                raise
            logger.warning("The run is finished, but Prefect was not reached: %s", fault(error))
            summary = stored
    return summary


def forked_run(
    store: Store, origin: str, overrides: Sequence[str]
) -> tuple[str, tuple[str, ...], str]:
    """The experiment, overrides and site of a run that continues from RUN@STEP.

    Raises ValueError for another reference, and for a step without a policy.
    """
    policy = run_step(f"run:{run_named(store, origin)}")
    if policy is None or policy.step == 0:
        raise ValueError(
            f"Got {origin!r}, expected RUN@STEP with a step of 1 or more, such as "
            "quickstart-1f2e3d4c@7."
        )
    record = known_run(store, policy.run)
    of_run(store, policy, "RUN@STEP")
    experiment, own = experiment_of(record)
    fork = Fork(run=policy.run, step=policy.step)
    return experiment, (*own, *forked(fork, overrides)), record["site"]["name"]
