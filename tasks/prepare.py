"""The dataset: built, checked, and published as three splits; and its version in DVC."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from agentfly_core import dataset, slots
from agentfly_core.measured import measuring
from agentfly_core.run import Lab
from agentfly_core.store import Artifact
from agentfly_core.versioning import Unversioned, Version, dataset_version
from tasks.stage import reused


@task(task_run_name="version the dataset with DVC", cache_policy=NO_CACHE)
def version(lab: Lab) -> Version | Unversioned:
    """DVC's version of the experiment's dataset, or why it keeps none."""
    return dataset_version(lab.experiment, lab.science, Path.cwd())


@task(task_run_name="prepare the dataset", cache_policy=NO_CACHE)
def prepare(lab: Lab) -> Artifact:
    """Publish the experiment's dataset; raises ValueError for data that cannot be used."""
    slot = slots.prepare(lab.science)
    if found := lab.store.find(slot):
        return reused(found)  # type: ignore[return-value]
    with lab.store.publish(slot) as folder, measuring(folder):
        dataset.prepare(lab.science, folder, Path("quarantine") / f"{lab.experiment}.json")
    return lab.store.artifact(slot.uri)
