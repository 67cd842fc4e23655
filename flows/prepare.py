"""The dataset of an experiment: built, checked and versioned."""

from __future__ import annotations

from prefect import flow

from agentfly_core.store.store import Artifact
from flows import dvc_outputs
from flows.flow_run import experiment_of_flow
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import reporting_stage
from tasks.stages import TASKS


@flow(name="prepare", flow_run_name="prepare {experiment}")
def prepare(
    experiment: ExperimentName = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> Artifact:
    """Build, check and version the dataset of an experiment, and nothing else."""
    loaded = experiment_of_flow(experiment, overrides, site, store)
    version, data = TASKS.version(loaded), TASKS.prepare(loaded)
    if dvc_outputs.wanted():  # by a run or a pipeline that tells MLflow itself
        dvc_outputs.write_dataset(loaded.name, loaded.store, data)
        return data
    with reporting_stage(loaded, "prepare") as reporter:
        reporter.data(data)
        reporter.data_version(version)
        reporter.made({"prepare": [data]})
    return data
