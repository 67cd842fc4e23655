"""The base model: any reference turned into one kind of artifact."""

from __future__ import annotations

from agentfly_core.experiment.context import ExperimentContext, Parent
from agentfly_core.models.adapter_artifact import require_same_shape
from agentfly_core.pipeline import inputs
from tasks.stage import Made, reused, stage


@stage("make the base model")
def base_model(context: ExperimentContext, parent: Parent | None) -> Made:
    """Publish the model that training starts from; a run with a parent starts from the parent's
    policy itself.
    """
    if parent:
        require_same_shape(context.store, parent.policy, context.science.adapter)
        return parent.policy
    model, made = inputs.base_model(context)
    return model if made else reused(model)
