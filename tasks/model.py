"""The base model: any reference turned into one kind of artifact."""

from __future__ import annotations

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measuring
from agentfly_core.models.adapter_artifact import require_same_shape
from agentfly_core.models.reference import materialise
from agentfly_core.runs.context import ExperimentContext, Parent
from tasks.stage import Made, reused, stage


@stage("make the base model")
def base_model(context: ExperimentContext, parent: Parent | None) -> Made:
    """Publish the model that training starts from; a run with a parent starts from the parent's
    policy itself.
    """
    if parent:
        require_same_shape(context.store, parent.policy, context.science.adapter)
        return parent.policy
    target = keys.model(context.science)
    if found := context.store.find(target):
        return reused(found)
    with context.store.publish(target) as folder, measuring(folder):
        materialise(context.science.model, folder, context.science.dtype)
    return context.store.artifact(target.uri)
