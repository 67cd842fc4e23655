"""The dataset: three splits, checked; and its version in DVC."""

from __future__ import annotations

from pathlib import Path

from agentfly_core.experiment.context import ExperimentContext
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play import solvable
from agentfly_core.runs.versioning import dataset_version
from agentfly_core.store.store import Artifact


def version(context: ExperimentContext) -> str:
    """DVC's version of the experiment's dataset, or why it keeps none."""
    return dataset_version(context.experiment, context.science, Path.cwd())


def prepare(context: ExperimentContext) -> Artifact:
    """The experiment's dataset.

    Raises ValueError for data that cannot be used, see `inputs.dataset`, and for problems that
    cannot be solved, see `solvable.check`.
    """
    data = inputs.dataset(context)
    solvable.check(context.store, context.experiment, context.resolved, data)
    return data
