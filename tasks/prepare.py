"""The dataset: built, checked, and published as three splits; and its version in DVC."""

from __future__ import annotations

from pathlib import Path

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measuring
from agentfly_core.records import dataset
from agentfly_core.runs.run import Lab
from agentfly_core.runs.versioning import dataset_version
from tasks.stage import Made, reused, stage


@stage("version the dataset with DVC")
def version(lab: Lab) -> str:
    """DVC's version of the experiment's dataset, or why it keeps none."""
    return str(dataset_version(lab.experiment, lab.science, Path.cwd()))


@stage("prepare the dataset")
def prepare(lab: Lab) -> Made:
    """Publish the experiment's dataset; raises ValueError for data that cannot be used."""
    slot = keys.prepare(lab.science)
    if found := lab.store.find(slot):
        return reused(found)
    with lab.store.publish(slot) as folder, measuring(folder):
        dataset.prepare(lab.science, folder, Path("quarantine") / f"{lab.experiment}.json")
    return lab.store.artifact(slot.uri)
