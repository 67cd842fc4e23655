"""What an experiment starts from: its dataset, its base model, and what a reference names."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measuring
from agentfly_core.artifacts.store import Artifact
from agentfly_core.models.reference import materialise
from agentfly_core.records import dataset as datasets
from agentfly_core.runs import dvc_pointer
from agentfly_core.runs.context import ExperimentContext, of_run
from agentfly_core.runs.run import name_of

QUARANTINE = Path("quarantine")


def dataset(context: ExperimentContext) -> tuple[Artifact, bool]:
    """The experiment's dataset, and whether it was made just now; raises ValueError for data that
    cannot be used.
    """
    target = keys.prepare(context.science)
    if found := context.store.find(target):
        return found, False
    with context.store.publish(target) as folder, measuring(folder) as metrics:
        file = QUARANTINE / f"{context.experiment}.json"
        metrics |= datasets.prepare(context.science, folder, file)
    return context.store.artifact(target.uri), True


def base_model(context: ExperimentContext) -> tuple[Artifact, bool]:
    """The model of a reference that names no run, and whether it was made just now; raises
    ValueError for a reference that names no model.
    """
    target = keys.model(context.science)
    if found := context.store.find(target):
        return found, False
    with context.store.publish(target) as folder, measuring(folder):
        materialise(context.science.model, folder, context.science.dtype)
    return context.store.artifact(target.uri), True


def policy_named(
    context: ExperimentContext, reference: str, model: Callable[[ExperimentContext], Artifact]
) -> Artifact:
    """The policy that `run:NAME`, `run:NAME@STEP`, a policy.json or a model reference names; by
    default the run's last.

    `model` gives the base model of an experiment whose model is that reference. Step 0 is the
    policy that step 1 starts from. Raises ValueError for a policy that is not there.
    """
    if reference.endswith(".json"):
        if not os.path.isfile(reference):
            raise ValueError(
                f"There is no file {reference!r}; expected one like results/EXPERIMENT/policy.json."
            )
        return dvc_pointer.read(Path(reference))
    if reference in context.store.names("runs"):
        raise ValueError(
            f"Got the policy {reference!r}, which is a run's name: say run:{reference}."
        )
    if reference and not reference.startswith("run:"):
        science = context.science.model_copy(update={"model": reference})
        return model(replace(context, resolved=replace(context.resolved, science=science)))
    return of_run(context.store, reference or f"run:{name_of(context, '', False)}", "policy").policy
