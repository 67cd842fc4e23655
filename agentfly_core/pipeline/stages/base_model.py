"""The model that training starts from, as an artifact, whatever its reference names."""

from __future__ import annotations

from agentfly_core.experiment.context import ExperimentContext, Parent
from agentfly_core.models.adapter_artifact import require_same_shape
from agentfly_core.pipeline import inputs
from agentfly_core.store.store import Artifact


def base_model(context: ExperimentContext, parent: Parent | None) -> Artifact:
    """The model that training starts from; with a parent, the parent's policy itself.

    Raises ValueError for an adapter of another shape than the experiment's.
    """
    if parent is None:
        return inputs.base_model(context)
    require_same_shape(context.store, parent.policy, context.science.adapter)
    return context.store.resolve(parent.policy)
