"""Load the experiment of a flow run, and lock its devices.

Devices are GPUs. On a site without GPUs, flows lock a CPU slot if a Prefect worker started them.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prefect import get_run_logger
from prefect.runtime import flow_run

from agentfly_core.config.credentials import SecretGiven
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.system.devices import held, numbered, slot
from flows.experiments import load_experiment
from flows.local.flow_run_owners import sign

logger = logging.getLogger(__name__)


def experiment_of_flow(
    experiment: str, overrides: Sequence[str], site: str, store: str
) -> Experiment:
    """Load the experiment of a flow run.

    Also label the flow run with the identity of this process. If the process is killed, its flow
    runs can be found by the label.

    Raises SecretGiven if a parameter of the flow run is a secret. Prefect has already stored the
    secret, so the error's message contains the command that deletes the flow run.
    """
    sign()
    try:
        return load_experiment(experiment, overrides, site, store)
    except SecretGiven as error:
        raise SecretGiven(
            f"{error}\nPrefect has stored the parameters of this flow run. To delete them: "
            f"agentfly prefect flow-run delete {flow_run.id}"
        ) from None


@contextmanager
def devices(site: Site, gpus: Sequence[int], holder: str) -> Iterator[None]:
    """Lock the devices of a site during the `with` block. Flows in the block share the devices.

    The devices are the GPUs with the numbers in `gpus`. On a site without GPUs, a flow that a
    Prefect worker started locks a CPU slot; any other flow locks nothing. If another process has
    locked a device, log the name of that process, and wait. `holder` is the name that other
    processes see for this process. Raises ValueError if GPUs are missing.
    """
    log = log_of_flow_run()
    wanted = numbered(gpus, site.locks)
    if log and site.device == "cpu":
        wanted = [slot(site.slots, site.locks)]
    with held(wanted, holder, (log or logger).warning):
        yield


def log_of_flow_run() -> logging.Logger | logging.LoggerAdapter[Any] | None:
    """Return the Prefect log of this flow run if a worker started the flow run, otherwise None."""
    # only processes that a worker starts have this variable
    return get_run_logger() if "PREFECT__FLOW_RUN_ID" in os.environ else None
