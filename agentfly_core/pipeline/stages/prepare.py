"""The dataset: three splits, checked."""

from __future__ import annotations

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play import solvable
from agentfly_core.store.artifact import Artifact


def prepare(experiment: Experiment) -> Artifact:
    """Make or find the dataset; raises ValueError as `inputs.dataset` and `solvable.check`."""
    data = inputs.dataset(experiment)
    solvable.check(experiment, data)
    return data
