"""Train the weights: one update of the policy."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline import retention
from agentfly_core.pipeline import update as policy_updates
from agentfly_core.pipeline.produce import produce
from agentfly_core.pipeline.services import TrainingServices
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact
from agentfly_core.store.manifest import MANIFEST
from agentfly_core.store.stage_metrics import FILE as METRICS


def update(
    run: Run,
    services: TrainingServices,
    policy: Artifact,
    scored: Artifact,
    step: int,
    memory: Artifact | None = None,
) -> Artifact:
    """Update the policy, and publish it as the policy after `step`, with the `memory` of the step.

    If the learner state before this step is not stored, earlier updates are repeated first. The new
    learner state is written while the next step is played.
    """
    target = StageKeys(run.settings).policy(run.name, policy, scored, step, run.reference, memory)
    if not run.settings.update.weights:
        return produce(run.store, target, partial(unchanged, run.store.open(policy)))
    if policy_made := retention.made(run, target, step):
        return policy_made
    learner = services.learner
    # checked first, because with a full disk the work of the update would be lost
    retention.require_space(run.store, run.experiment.sizes(policy), learner.busy())
    services.player.rest()
    policy_updates.catch_up(run, learner, step)
    # old states are removed only after the new state is published
    retain = partial(retention.retain, run, step)
    save = partial(learner.begin, then=retain) if retention.keeps_state(run, step) else None
    job = policy_updates.step_job(run, policy, scored, target, step)
    return policy_updates.publish(
        run.store, learner, job, policy, target, save, policy_updates.watching("update", step)
    )


def unchanged(policy: Path, folder: Path) -> Mapping[str, float]:
    """Fill a folder with hard links to the files of a policy. Its weights are not changed."""
    for path in policy.iterdir():
        if path.name not in (MANIFEST, METRICS):
            os.link(path, folder / path.name)
    return {"train/optimizer_steps": 0.0, "train/skipped_steps": 0.0}


def keep_state(run: Run, services: TrainingServices, step: int) -> None:
    """Write the learner state of a step, unless it is stored.

    This is needed if the step becomes the last step of the run.
    """
    if run.settings.update.weights:
        services.player.rest()
        policy_updates.keep_state(run, services.learner, step)
