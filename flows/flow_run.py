"""The experiment of a flow run."""

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
    """Load the experiment of a flow run, and label the run with this process.

    For a secret, the error contains the command that deletes the flow run from Prefect.
    """
    sign()
    try:
        return load_experiment(experiment, overrides, site, store)
    except SecretGiven as error:
        raise SecretGiven(
            f"{error}\nPrefect has stored the parameters of this flow run. To delete them: "
            f"agentfly prefect flow-run delete {flow_run.id}"
        ) from None
