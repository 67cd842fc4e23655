"""The base model: any reference turned into one kind of artifact."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from agentfly_core import slots
from agentfly_core.measured import measuring
from agentfly_core.model import materialise
from agentfly_core.run import Lab, Parent
from agentfly_core.store import Artifact
from tasks.stage import reused


@task(task_run_name="make the base model", cache_policy=NO_CACHE)
def base_model(lab: Lab, parent: Parent | None) -> Artifact:
    """Publish the model that training starts from; a run with a parent starts from the parent's policy itself."""
    if parent:
        return parent.policy
    slot = slots.model(lab.science)
    if found := lab.store.find(slot):
        return reused(found)  # type: ignore[return-value]
    with lab.store.publish(slot) as folder, measuring(folder):
        materialise(lab.science.model, folder, lab.science.dtype)
    return lab.store.artifact(slot.uri)
