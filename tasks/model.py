"""The base model: any reference turned into one kind of artifact."""

from __future__ import annotations

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measuring
from agentfly_core.models.adapter_artifact import require_same_shape
from agentfly_core.models.reference import materialise
from agentfly_core.runs.run import Lab, Parent
from tasks.stage import Made, reused, stage


@stage("make the base model")
def base_model(lab: Lab, parent: Parent | None) -> Made:
    """Publish the model that training starts from; a run with a parent starts from the parent's policy itself."""
    if parent:
        require_same_shape(lab.store, parent.policy, lab.science.adapter)
        return parent.policy
    slot = keys.model(lab.science)
    if found := lab.store.find(slot):
        return reused(found)
    with lab.store.publish(slot) as folder, measuring(folder):
        materialise(lab.science.model, folder, lab.science.dtype)
    return lab.store.artifact(slot.uri)
