"""Retention of policies and learner states, and checks of free disk space."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass

from agentfly_core.config.evaluation import Evaluate
from agentfly_core.config.experiment import Rollout, Update
from agentfly_core.config.parts import Data
from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment import keys
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout, done_by, finished_summary, record_of
from agentfly_core.pipeline.checkpointing import AsyncCheckpointer
from agentfly_core.runs.run import Run, recorded_settings
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged

WEIGHTS = "*.safetensors"
BYTES_A_TOKEN = 16  # its number, its log-probability and its text, before compression
logger = logging.getLogger(__name__)


class NoSpace(OSError):
    """Too little disk space; the message gives the needed and the free GiB."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Steps with learner states, and with policies, that other runs need: `Kept(learners={7},
    policies={6, 7})`.
    """

    learners: set[int]
    policies: set[int]


def made(run: Run, target: ArtifactKey, step: int) -> Artifact | None:
    """Find the policy of a step; the run's newest counts only with its learner state.

    A run that died between publishing the two recomputes both.
    """
    newest = not run.store.holds(run.layout.step(step + 1).policy)
    if newest and keeps_state(run, step) and not run.store.holds(keys.learner(target).uri):
        return None
    return run.store.find(target)


def keeps_state(run: Run, step: int) -> bool:
    """Whether the learner state after this step is saved."""
    return step % run.settings.update.learner_every == 0 or step == run.settings.steps


def retain(run: Run, step: int) -> None:
    """Remove old learner states and policy weights, by the settings of the update.

    Nothing is removed unless the newest learner state verifies. Weights of evaluated policies stay,
    and files that other runs, a resumed update or a later step's sampler may load.
    """
    keep, store, begin = run.settings.update, run.store, run.settings.own_steps.start
    steps = [(number, run.layout.step(number)) for number in range(begin, step + 1)]
    states = [k for k, here in steps if store.holds(here.learner) and store.holds(here.policy)]
    if not states or not store.find(store.artifact(run.layout.step(states[-1]).learner).key):
        return
    others = kept_for_others(store, run.name)  # read late, to include runs that have just begun
    for old in states[: -keep.keep_learner]:
        if old not in others.learners:
            store.remove(run.layout.step(old).learner)
    needed = min(states[-keep.keep_learner :][0], step - run.settings.rollout.max_staleness)
    first = min(needed, step + 1 - keep.keep_policies) if keep.keep_policies else begin
    for old in reversed(range(begin, first)):
        if run.evaluates(old) or old in others.policies:
            continue
        if not store.strip(run.layout.step(old).policy, WEIGHTS):
            break


def kept_for_others(store: Store, run: str) -> Kept:
    """Collect the steps of this run that other runs need.

    A fork needs its first policies, and until it has finished the learner state. An unfinished run
    needs its frozen speakers.
    """
    kept = Kept(set(), set())
    for name in store.names("runs"):
        try:
            record = record_of(store, name)
        except Damaged as damage:
            logger.warning("%s If it needs policies of %s, none is kept for it.", damage, run)
            continue
        if record is None or not (record["settings"].get("fork") or record.get("frozen")):
            continue
        settings = recorded_settings(record)
        finished = finished_summary(store, name, settings.steps)
        if fork := settings.fork:
            first = first_policy(fork.step, settings.rollout.max_staleness)
            begun = range(first, fork.step + 1)
            own = {step for step in begun if done_by(store, fork.run, step) == run}
            kept.policies.update(own)
            if settings.inherits_learner and not finished:
                kept.learners.update(own & {fork.step})
        if not finished:
            speakers = settings.agent.speakers.values()
            frozen = [who for who in speakers if isinstance(who, RunPolicy)]
            kept.policies.update(
                who.step for who in frozen if done_by(store, who.run, who.step) == run
            )
    return kept


def first_policy(step: int, staleness: int) -> int:
    """Step of the oldest policy that a fork from `step` samples from, 0 for the start."""
    return max(step - staleness, 0)


def require_space(store: Store, sizes: tuple[int, int], checkpointer: AsyncCheckpointer) -> None:
    """Raise NoSpace unless the disk has room for a policy and a learner state of these `sizes` in
    bytes, and for a state that is being saved.
    """
    policy, state = sizes
    needed = policy + state * (2 if checkpointer.busy() else 1)
    folder, free = store.root, shutil.disk_usage(store.root).free
    if free < needed:
        raise NoSpace(
            f"{folder} has {free / 2**30:.1f} GiB free; an update of this model needs "
            f"{needed / 2**30:.1f} GiB. Free some space and run the same command again."
        )


def require_space_for_night(experiment: Experiment, night: str) -> None:
    """Raise NoSpace unless the disk has room for the remaining steps of a run.

    An upper bound: each episode fills the model's context. With object storage the disk of the
    working copies is checked. Before the base model exists, only episodes count.
    """
    settings, store, layout = experiment.settings, experiment.store, RunLayout(night)
    done = [step for step in layout.steps(store) if store.holds(layout.step(step).policy)]
    left = settings.steps - max(done, default=settings.start_step)
    model = parent.policy if (parent := experiment.parent) else None
    stage_keys = StageKeys(settings)
    target = None if model else stage_keys.base_model(store.get(stage_keys.prepare().uri))
    if target and store.holds(target.uri):
        model = store.artifact(target.uri)
    rollout, evaluate = settings.rollout, settings.evaluate
    policies, states = _kept(settings.update, evaluate.every, rollout.max_staleness, left)
    size, state = experiment.sizes(model) if model else (0, 0)
    episodes = _episodes(rollout, evaluate, settings.data, settings.agent.max_model_len, left)
    needed = policies * size + states * state + episodes
    folder = next(place for place in (store.root, *store.root.parents) if place.exists())
    free = shutil.disk_usage(folder).free
    if left and free < needed:
        raise NoSpace(
            f"{folder} has {free / 2**30:.1f} GiB free; the {left} steps that {night} has to do "
            f"need up to {needed / 2**30:.1f} GiB, for {policies} policies, {states} learner "
            "states and the episodes. Free some space, remove old runs, or keep less: "
            "update.keep_policies, update.keep_learner."
        )


def _kept(update: Update, every: int, max_staleness: int, steps: int) -> tuple[int, int]:
    """Upper bound of the policies and learner states on disk at a time.

    A new file is written before an old one is removed. Policies stay back to the oldest learner
    state.
    """
    states = min(update.keep_learner, 1 + steps // update.learner_every) + 1
    if update.keep_policies == 0:
        return steps, states
    back = max(update.keep_policies, update.keep_learner * update.learner_every, max_staleness)
    evaluated = steps // every if every else 0
    return min(steps, back + evaluated + 1), states


def _episodes(
    rollout: Rollout, evaluate: Evaluate, data: Data, max_model_len: int, steps: int
) -> int:
    """Upper bound in bytes of the episodes of these steps and of held-out evaluations."""
    trained = steps * rollout.problems * rollout.group_size * (1 + rollout.refills)
    validations = steps // evaluate.every if evaluate.every else 0
    held_out = 2 * data.test + validations * data.validation
    longest = BYTES_A_TOKEN * max_model_len
    return (trained + evaluate.episodes * held_out) * longest
