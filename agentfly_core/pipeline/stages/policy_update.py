"""Change weights: one update of the policy."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline import retention
from agentfly_core.pipeline import update as policy_updates
from agentfly_core.pipeline.produce import produce, reused
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
    """Update the policy, and publish it as policy number `step`, with the `memory` of the step.

    Earlier updates without a stored learner state are repeated first. The learner state of the step
    is written while the next step is played.
    """
    target = StageKeys(run.settings).policy(run.name, policy, scored, step, run.reference, memory)
    if not run.settings.update.weights:
        return produce(run.store, target, partial(unchanged, run.store.open(policy)))
    if policy_made := retention.made(run, target, step):
        return reused(policy_made)
    learner = services.learner
    # checked before the update, because a full disk would waste its work
    retention.require_space(run.store, run.experiment.sizes(policy), learner.busy())
    services.player.rest()
    policy_updates.catch_up(run, learner, step)
    # old states are removed only after the new one is published
    retain = partial(retention.retain, run, step)
    save = partial(learner.begin, then=retain) if retention.keeps_state(run, step) else None
    job = policy_updates.step_job(run, policy, scored, target, step)
    return policy_updates.publish(
        run.store, learner, job, policy, target, save, policy_updates.watching("update", step)
    )


def unchanged(policy: Path, folder: Path) -> Mapping[str, float]:
    """Fill a folder with links to the files of a policy."""
    for path in policy.iterdir():
        if path.name not in (MANIFEST, METRICS):
            os.link(path, folder / path.name)
    return {"train/optimizer_steps": 0.0, "train/skipped_steps": 0.0}


def keep_state(run: Run, services: TrainingServices, step: int) -> None:
    """Write the learner state of a step that becomes the run's last step, unless it is stored."""
    if run.settings.update.weights:
        services.player.rest()
        policy_updates.keep_state(run, services.learner, step)
