"""The dataset: built, checked, and published as three splits; and its version in DVC."""

from __future__ import annotations

from pathlib import Path

from agentfly_core.experiment.context import ExperimentContext
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play import solvable
from agentfly_core.runs.versioning import dataset_version
from tasks.stage import Made, reused, stage


@stage("version the dataset with DVC")
def version(context: ExperimentContext) -> str:
    """DVC's version of the experiment's dataset, or why it keeps none."""
    return dataset_version(context.experiment, context.science, Path.cwd())


@stage("prepare the dataset")
def prepare(context: ExperimentContext) -> Made:
    """Publish the experiment's dataset; raises ValueError for data that cannot be used, see
    `inputs.dataset`, and for problems that cannot be solved, see `solvable.check`.
    """
    data, made = inputs.dataset(context)
    solvable.check(context, data)
    return data if made else reused(data)
