"""The experiment and the devices of a flow run. Devices are GPUs, or a CPU slot if a Prefect worker
runs the flow.
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
    """Load the experiment of a flow run. Also label the flow run with the identity of this process.

    Raises SecretGiven if a parameter is a secret. Its message contains the command that deletes the
    flow run, because Prefect has stored its parameters.
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
    """Lock the devices of a site during the block. Flows that run in the block share them.

    The devices are these GPUs of the site, or a CPU slot if a Prefect worker runs the flow on a
    site without GPUs. If another process has locked them, wait, and report that process on the
    terminal or in the log of the flow run. `holder` is the text by which this process is reported
    to others. Raises ValueError if GPUs are missing.
    """
    log = log_of_flow_run()
    wanted = numbered(gpus, site.locks)
    if log and site.device == "cpu":
        wanted = [slot(site.slots, site.locks)]
    with held(wanted, holder, (log or logger).warning):
        yield


def log_of_flow_run() -> logging.Logger | logging.LoggerAdapter[Any] | None:
    """Return the log of this flow run in Prefect if a worker has started it, otherwise None."""
    # only processes that a worker starts have this variable
    return get_run_logger() if "PREFECT__FLOW_RUN_ID" in os.environ else None
