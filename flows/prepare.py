"""The dataset of an experiment: built, checked and versioned."""

from __future__ import annotations

from prefect import flow

from agentfly_core.store import Artifact
from flows import results
from flows.lab import lab_of
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from tasks import prepare as tasks


@flow(name="prepare", flow_run_name="prepare {experiment}")
def prepare(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> Artifact:
    """Build, check and version the dataset of an experiment, and nothing else."""
    lab = lab_of(experiment, overrides, site, store)
    tasks.version(lab)
    data = tasks.prepare(lab)
    if results.wanted():
        results.write_dataset(lab, data)
    return data
