"""Which policies and learner states stay on disk, and whether there is room for more."""

from __future__ import annotations

import shutil

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.store import Artifact, ArtifactKey
from agentfly_core.models import adapter_artifact
from agentfly_core.pipeline.checkpointing import AsyncCheckpointer
from agentfly_core.runs.context import ExperimentContext
from agentfly_core.runs.run import Run

WEIGHTS = "*.safetensors"


def made(run: Run, target: ArtifactKey, step: int) -> Artifact | None:
    """The policy of a step, if it is there; the run's newest counts only with the learner state
    that goes with it.

    Where the run died between the two, both are recomputed.
    """
    newest = not run.store.holds(run.layout.step(step + 1).policy)
    if newest and keeps_state(run, step) and not run.store.holds(keys.learner(target).uri):
        return None
    return run.store.find(target)


def keeps_state(run: Run, step: int) -> bool:
    """Whether the learner state after this step goes to disk."""
    return step % run.science.update.learner_every == 0 or step == run.science.steps


def retain(run: Run, step: int) -> None:
    """Remove what the settings of the update do not keep, if the newest learner state that has its
    policy verifies.

    The weights of a policy stay, too, when it was evaluated, and when updates may be run again from
    it or later steps sample from it.
    """
    keep, store = run.science.update, run.store
    steps = [(number, run.layout.step(number)) for number in range(1, step + 1)]
    states = [k for k, here in steps if store.holds(here.learner) and store.holds(here.policy)]
    if not states or not store.whole(store.artifact(run.layout.step(states[-1]).learner)):
        return
    for old in states[: -keep.keep_learner]:
        store.remove(run.layout.step(old).learner)
    needed = min(states[-keep.keep_learner :][0], step - run.science.rollout.max_staleness)
    first = min(needed, step + 1 - keep.keep_policies) if keep.keep_policies else 1
    for old in reversed(range(1, first)):
        if not run.evaluates(old) and not store.strip(run.layout.step(old).policy, WEIGHTS):
            break


def require_space(
    context: ExperimentContext, policy: Artifact, checkpointer: AsyncCheckpointer
) -> None:
    """Raise OSError unless the disk can hold a learner state and a policy more, and a state that is
    on its way.

    The state is three float32 numbers a weight (master, and AdamW's two moments), and as many again
    for a critic that is a model of its own; the policy is one number of the model's dtype. Only an
    adapter's weights count where only they are trained.
    """
    folder, models = (
        context.store.root,
        2 if context.resolved.algorithm.needs.critic == "model" else 1,
    )
    width = 2 if context.science.dtype == "bfloat16" else 4
    files, base = adapter_artifact.folders(context.store, policy)
    if context.science.adapter:
        size = width * adapter_artifact.weights(base or files, context.science.adapter)
    else:
        size = sum(path.stat().st_size for path in files.iterdir())
    needed = size + models * size * 12 // width * (2 if checkpointer.busy() else 1)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"{folder} has {free / 2**30:.1f} GiB free; an update of this model needs "
            f"{needed / 2**30:.1f} GiB. Free some space and run the same command again."
        )
