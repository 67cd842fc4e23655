"""The dataset of an experiment: built, checked and versioned."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from agentfly_core.store.artifact import Artifact
from flows import dvc_outputs
from flows.flow_run import experiment_of_flow
from flows.parameters import ExperimentName, Overrides, SiteName, StoreUri
from flows.reporting import report_stage
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
    version = TASKS.version(loaded.name, loaded.settings, Path.cwd())
    data = TASKS.prepare(loaded)
    if dvc_outputs.wanted():  # the pipeline reports to MLflow
        dvc_outputs.write_dataset(loaded.name, loaded.store, data)
        return data

    report_stage(loaded, "prepare", data, version=version, stages={"prepare": [data]})
    return data
