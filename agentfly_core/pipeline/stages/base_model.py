"""The model that training starts from, as an artifact, whatever its reference names."""

from __future__ import annotations

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_policies import Parent
from agentfly_core.models.adapter_artifact import require_same_shape
from agentfly_core.pipeline import inputs
from agentfly_core.store.artifact import Artifact


def base_model(experiment: Experiment, parent: Parent | None) -> Artifact:
    """The model that training starts from; with a parent, the parent's policy itself.

    Raises ValueError for an adapter of another shape than the experiment's.
    """
    if parent is None:
        return inputs.base_model(experiment)
    require_same_shape(experiment.store, parent.policy, experiment.settings.adapter)
    return experiment.store.resolve(parent.policy)
