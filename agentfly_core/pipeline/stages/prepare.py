"""The dataset: three splits, checked; and its version in DVC."""

from __future__ import annotations

from pathlib import Path

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play import solvable
from agentfly_core.runs.versioning import dataset_version
from agentfly_core.store.artifact import Artifact


def version(experiment: Experiment) -> str:
    """DVC's version of the experiment's dataset, or why it keeps none."""
    return dataset_version(experiment.name, experiment.settings, Path.cwd())


def prepare(experiment: Experiment) -> Artifact:
    """The experiment's dataset.

    Raises ValueError for data that cannot be used, see `inputs.dataset`, and for problems that
    cannot be solved, see `solvable.check`.
    """
    data = inputs.dataset(experiment)
    solvable.check(experiment, data)
    return data
