"""Remove old policies and learner states, and check the free disk space."""

import logging
import shutil
from dataclasses import dataclass

from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment import keys
from agentfly_core.experiment.run_layout import RunLayout, done_by, finished_summary, record_of
from agentfly_core.pipeline.produce import Reused, find
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.run import Run, recorded_settings
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.formats.file_shapes import ArtifactRecord

WEIGHTS = "*.safetensors"
logger = logging.getLogger(__name__)


class NoSpace(OSError):
    """The disk space is too small for an update.

    The message contains the needed and the free GiB.
    """


@dataclass(frozen=True, slots=True)
class Kept:
    """Steps of a run that other runs still need: `Kept(learners={7}, policies={6, 7})`.

    `learners` are the steps of needed learner states, and `policies` the steps of needed policies.
    """

    learners: set[int]
    policies: set[int]


def made(run: Run, target: ArtifactKey, step: int) -> Reused | None:
    """Return the published policy of a step, or None if the update must be computed.

    A killed run may have published its newest policy without the learner state. If this learner
    state must be saved, the result is None, and the update is computed again.
    """
    newest = not run.store.holds(run.layout.step(step + 1).policy)
    if newest and keeps_state(run, step) and not run.store.holds(keys.learner(target).uri):
        return None
    return find(run.store, target)


def keeps_state(run: Run, step: int) -> bool:
    """Whether the run saves the learner state after this step."""
    # always saved after the last step, because another run may continue from this state
    return step % run.settings.update.learner_every == 0 or step == run.settings.steps


def retain(run: Run, step: int) -> None:
    """Remove old learner states and old policy weights, as the settings in `update` specify.

    Files are removed only if the newest learner state is intact. Evaluated policies keep their
    weights. Files are kept if another run, a resumed update, or the sampler of a later step may
    load them.
    """
    keep, store, begin = run.settings.update, run.store, run.settings.own_steps.start
    steps = [(number, run.layout.step(number)) for number in range(begin, step + 1)]
    # a run that was killed in this function may have a state without its policy
    states = [k for k, here in steps if store.holds(here.learner) and store.holds(here.policy)]
    if not states or not store.find(store.artifact(run.layout.step(states[-1]).learner).key):
        return
    # read only now, to include runs that have just begun
    others = kept_for_others(store, run.name)
    for old in states[: -keep.keep_learner]:
        if old not in others.learners:
            store.remove(run.layout.step(old).learner)
    needed = min(states[-keep.keep_learner :][0], step - run.settings.rollout.max_staleness)
    first = min(needed, step + 1 - keep.keep_policies) if keep.keep_policies else begin
    for old in reversed(range(begin, first)):
        if run.evaluates(old) or old in others.policies:
            continue
        # an earlier call has removed the weights of all older policies
        if not store.strip(run.layout.step(old).policy, WEIGHTS):
            break


def kept_for_others(store: Store, run: str) -> Kept:
    """Return the steps of `run` that other runs need.

    A run needs the policy from which it started, and the reference policy of its KL penalty. A
    forked run also needs the policies from which its first steps sample. An unfinished run also
    needs the policies of its untrained speakers, and the learner state from which its first step
    continues.
    """
    kept = Kept(set(), set())
    for name in store.names("runs"):
        try:
            if record := record_of(store, name):
                _keep_for(record, store, run, kept)
        except ValueError as fault:
            # a run that is damaged, or that another version wrote, must not stop this run
            logger.warning(
                "%s Therefore, the policies that the run %s needs are unknown. The run %s may "
                "remove these policies.",
                fault,
                name,
                run,
            )
    return kept


def _keep_for(record: RunRecord, store: Store, run: str, kept: Kept) -> None:
    """Find the steps of `run` that another run needs, and add these steps to `kept`.

    `record` describes the other run.
    """
    parent, reference = _steps_in(run, record["parent"]), _steps_in(run, record["reference"])
    kept.policies.update(parent | reference)
    if not (parent or record["settings"].get("fork") or record.get("frozen")):
        return
    settings = recorded_settings(record)
    if fork := settings.fork:
        first = first_policy(fork.step, settings.rollout.max_staleness)
        begun = range(first, fork.step + 1)
        kept.policies.update(step for step in begun if done_by(store, fork.run, step) == run)
    if finished_summary(store, record["name"], settings.steps):
        return
    if settings.inherits_learner:
        kept.learners.update(parent)
    frozen = [who for who in settings.agent.speakers.values() if isinstance(who, RunPolicy)]
    kept.policies.update(who.step for who in frozen if done_by(store, who.run, who.step) == run)


def _steps_in(run: str, policy: ArtifactRecord | None) -> set[int]:
    """Return the number of the step in which `run` published a policy, as a set: `{7}`.

    The set is empty if the policy is None or does not belong to a step of the run.
    """
    steps = f"{RunLayout(run).uri}/steps/"
    if policy is None or not policy["uri"].startswith(steps):
        return set()
    return {int(policy["uri"].removeprefix(steps).partition("/")[0])}


def first_policy(step: int, staleness: int) -> int:
    """Return the step of the oldest policy that a fork uses for sampling.

    The fork starts from the step `step`, and `staleness` is `rollout.max_staleness`. The result 0
    means the policy before step 1.
    """
    return max(step - staleness, 0)


def require_space(store: Store, sizes: tuple[int, int], saving: bool) -> None:
    """Raise NoSpace if the disk space is too small for an update.

    An update writes a policy and a learner state. `sizes` are their sizes in bytes. If the previous
    state is still being saved (`saving`), two states must fit.
    """
    policy, state = sizes
    needed = policy + state * (2 if saving else 1)
    folder, free = store.root, shutil.disk_usage(store.root).free
    if free < needed:
        raise NoSpace(
            f"{folder} has {free / 2**30:.1f} GiB free; an update of this model needs "
            f"{needed / 2**30:.1f} GiB. Free some space, and run the same command again."
        )
