"""The beginning of a flow run: what it was started with, which Prefect has stored before, and its
process.
"""

from __future__ import annotations

from collections.abc import Sequence

from prefect.runtime import flow_run

from agentfly_core.config.credentials import SecretGiven
from agentfly_core.experiment.experiment import Experiment
from flows.experiments import load_experiment
from flows.local.flow_run_owners import sign


def experiment_of_flow(
    experiment: str, overrides: Sequence[str], site: str, store: str
) -> Experiment:
    """`load_experiment` for a flow, whose run is labelled with this process.

    With a secret, the error says how to delete it from Prefect.
    """
    sign()
    try:
        return load_experiment(experiment, overrides, site, store)
    except SecretGiven as error:
        raise SecretGiven(
            f"{error}\nPrefect has stored what this flow run was given. This deletes it: "
            f"agentfly prefect flow-run delete {flow_run.id}"
        ) from None
