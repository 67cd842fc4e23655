"""Train the weights: one update of the policy.

An update reads the policy and the training data from the store, and publishes the new policy. Some
updates also publish the learner state: the weights and the optimizer state.
"""

import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from agentfly_core.config.experiment import Fork, Update
from agentfly_core.config.parts import AlgorithmPart
from agentfly_core.experiment import keys
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout, rollouts, step_layout
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.models import adapter_artifact
from agentfly_core.pipeline import produce, retention
from agentfly_core.pipeline.services import TrainingServices
from agentfly_core.pipeline.stop_conditions import stop_if_diverging
from agentfly_core.records.parquet import EPISODES, HELD_OUT, SCORES
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.manifest import MANIFEST
from agentfly_core.store.stage_metrics import FILE as METRICS
from agentfly_core.store.stage_metrics import measured, timing
from agentfly_core.store.store import Store
from agentfly_core.system import files
from agentfly_core.system.formats import hashing
from agentfly_core.system.progress import Progress, report
from agentfly_core.training.checkpointing import AsyncCheckpointer
from agentfly_core.training.job import OnStep, UpdateJob

SFT = AlgorithmPart(use="agentfly_core.algorithms.sft:SFT")
Save = Callable[[AbstractContextManager[Path]], None]


def update(
    run: Run,
    services: TrainingServices,
    policy: Artifact,
    scored: Artifact,
    step: int,
    memory: Artifact | None = None,
) -> Artifact:
    """Update the policy, and publish it as the policy after `step`.

    `memory` is the new memory (a folder that agents read) from this step. Its digest is
    recorded in the new policy's inputs. The update needs the learner state (weights and optimizer
    state) from before this step. If the learner's memory lacks this state, the learner reads the
    newest stored state. Updates after that state are repeated first. Without a stored state, all
    earlier updates of the run are repeated. Every `update.learner_every` steps, and in the last
    step, the new learner state is saved. The next step can begin before saving ends.
    """
    target = StageKeys(run.settings).policy(run.name, policy, scored, step, run.reference, memory)
    if not run.settings.update.weights:
        return produce.produce(run.store, target, partial(unchanged, run.store.open(policy)))
    if policy_made := retention.made(run, target, step):
        return policy_made
    learner = services.learner
    # checked first, because with a full disk the work of the update would be lost
    retention.require_space(run.store, run.experiment.sizes(policy), learner.busy())
    services.player.rest()
    catch_up(run, learner, step)
    # old states are removed only after the new state is published
    retain = partial(retention.retain, run, step)
    save = partial(learner.begin, then=retain) if retention.keeps_state(run, step) else None
    job = step_job(run, policy, scored, target, step)
    return publish(run.store, learner, job, policy, target, save, watching("update", step))


def unchanged(policy: Path, folder: Path) -> Mapping[str, float]:
    """Fill the folder of a new policy with hard links to the files of an unchanged policy.

    This function replaces the update if the setting is `update: none`.
    """
    for path in policy.iterdir():
        if path.name not in (MANIFEST, METRICS):
            os.link(path, folder / path.name)
    return {"train/optimizer_steps": 0.0, "train/skipped_steps": 0.0}


def fresh(policy: Pointer) -> str:
    """Return the label of a learner that starts from this policy with a new optimizer state.

    A label identifies the weights and the optimizer state of a learner.
    """
    return f"fresh:{policy.digest}"


def step_job(
    run: Run, before: Artifact, scored: Artifact, target: ArtifactKey, step: int
) -> UpdateJob:
    """Make the update job of a step.

    The job updates the policy `before` with the scored episodes. `target` is the key of the new
    policy.
    """
    store, settings = run.store, run.settings
    policy, base = adapter_artifact.folders(store, before)
    goes_on = step > settings.own_steps.start or settings.inherits_learner
    reference, reference_base = (
        adapter_artifact.folders(store, near) if (near := run.kl_reference) else (None, None)
    )
    return UpdateJob(
        start=label_of(run, step - 1),
        end=target.key,
        policy=str(policy),
        learner=_learner_state(store, before.key) if goes_on else None,
        rollouts=tuple(str(store.open(shard) / EPISODES) for shard in rollouts(scored)),
        scores=str(store.open(scored) / SCORES),
        algorithm=settings.algorithm,
        rewards={reward.name: weight for reward, weight in run.experiment.whole.rewards.items()},
        update=settings.update.model_copy(
            update={"learning_rate": learning_rate(settings.update, step, settings.steps)}
        ),
        batch=None,
        temperature=settings.rollout.temperature,
        dtype=settings.dtype,
        seed=hashing.seed(settings.seed, "update", *settings.seeds_of(step)[1:]),
        reference=str(reference) if reference else None,
        before=measured(store, before).metrics if goes_on else {},
        adapter=settings.adapter,
        base=str(base) if base else None,
        reference_base=str(reference_base) if reference_base else None,
    )


def learning_rate(update: Update, step: int, steps: int) -> float:
    """Return the learning rate of a step. `step` counts from 1 to `steps`.

    The rate increases in the warm-up steps. Three warm-up steps, for example, have 1/4, 2/4 and 3/4
    of `update.learning_rate`. The later steps have the rates of the transformers scheduler with the
    name `update.lr_scheduler_type`.
    """
    warmup = update.warmup_steps
    if step <= warmup:
        return update.learning_rate * step / (warmup + 1)
    done = (step - 1 - warmup) / max(steps - warmup, 1)
    share = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
    }
    return update.learning_rate * share[update.lr_scheduler_type]


def warm_start_job(
    experiment: Experiment, model: Artifact, demonstrations: Artifact, number: int
) -> UpdateJob:
    """Make the update job of the warm start's round `number`, which counts from 1.

    The warm start is masked supervised fine-tuning.
    """
    settings, warm_start = experiment.settings, experiment.settings.warm_start
    assert warm_start is not None
    here = StageKeys(settings).warm_start(model, demonstrations, number)
    before = StageKeys(settings).warm_start(model, demonstrations, number - 1)
    policy, base = adapter_artifact.folders(
        experiment.store, experiment.store.artifact(before.uri) if number > 1 else model
    )
    update = Update(
        learning_rate=warm_start.learning_rate * (1 - (number - 1) / warm_start.rounds),
        epochs=warm_start.epochs_per_round,
        share_prefixes=settings.update.share_prefixes,
    )
    shown = experiment.store.open(demonstrations)
    held_out = shown / HELD_OUT
    return UpdateJob(
        start=before.key if number > 1 else fresh(model),
        end=here.key,
        policy=str(policy),
        learner=_learner_state(experiment.store, before) if number > 1 else None,
        rollouts=(str(shown / EPISODES),),
        held_out=str(held_out) if held_out.is_file() else None,
        scores=None,
        algorithm=SFT,
        rewards={},
        update=update,
        batch=warm_start.batch,
        temperature=1.0,
        dtype=settings.dtype,
        seed=hashing.seed(settings.seed, "warm_start", number),
        reference=None,
        adapter=settings.adapter,
        base=str(base) if base else None,
    )


def publish(
    store: Store,
    checkpointer: AsyncCheckpointer,
    job: UpdateJob,
    before: Artifact,
    target: ArtifactKey,
    save: Save | None,
    watch: OnStep,
) -> Artifact:
    """Update the policy `before`, and publish the new policy under the key `target`.

    `save` writes the new learner state (weights and optimizer state). If `save` is None, the state
    is not saved. If the policy diverges, nothing is published and GateClosed is raised.
    """
    for left in (keys.learner(target), target):  # a state belongs to its policy
        store.remove(left.uri)

    def make(folder: Path) -> Mapping[str, float]:
        metrics = {**checkpointer.learner.update(job, watch)}
        # checked before anything is saved, because a diverged policy is not published
        section = "update" if job.scores else "warm_start"
        stop_if_diverging(int(metrics["train/skipped_in_a_row"]), section)
        with timing(metrics, "time/checkpoint"):
            for old in filter(None, (job.policy, job.learner)):
                # drop the old files from the page cache, because the new files need the memory
                files.uncache(Path(old))
            checkpointer.learner.save_policy(folder)
            if job.adapter:
                adapter_artifact.remember(
                    folder, adapter_artifact.base_of(store, before) or before, job.adapter
                )
            if save:
                save(store.publish(keys.learner(target)))
            else:
                checkpointer.wait()
        return metrics

    return produce.publish(store, target, make)


def label_of(run: Run, step: int) -> str:
    """Return the label of the learner state after a step.

    A label identifies the weights and the optimizer state of a learner. The label is the key of the
    published policy after the step. If the run starts at this step with a new optimizer state, the
    label is instead computed by the function `fresh`. Raises ValueError if the run starts from the
    learner state of another run, and this state is missing.
    """
    if step > run.settings.start_step:
        return _published(run, step).key
    if not run.settings.inherits_learner:
        return fresh(run.start)
    if run.settings.fork:
        require_learner_state(run.store, run.settings.fork)
    start = run.store.resolve(run.start).key
    if run.parent is None or run.store.find(keys.learner(start)) is None:
        raise ValueError(
            f"update.optimizer_state is 'parent', but the start policy {run.start.uri} has no "
            "optimizer state. Set update.optimizer_state=fresh. Or set `model` to the last step of "
            "a run in this store, and remove warm_start."
        )
    return start.key


def require_learner_state(store: Store, fork: Fork) -> None:
    """Raise ValueError if the store lacks the learner state (weights and optimizer state) after the
    step `fork.step` of the run `fork.run`.
    """
    run, step = fork.run, fork.step
    if store.holds(step_layout(store, run, step).learner):
        return
    steps = range(1, max([step, *RunLayout(run).steps(store)]) + 1)
    kept = [str(k) for k in steps if store.holds(step_layout(store, run, k).learner)]
    raise ValueError(
        f"The learner state of {run}@{step} is not kept. Start with a fresh optimizer "
        "(fork.optimizer_state=fresh), or fork from a step with a learner state: "
        f"{', '.join(kept) or 'this run has none'}. To keep more learner states in future runs, "
        "raise update.keep_learner."
    )


def catch_up(run: Run, checkpointer: AsyncCheckpointer, step: int) -> None:
    """Bring the learner to the state before `step`.

    If the learner does not have this state yet, start from the newest stored state, and repeat
    all updates after the stored state.
    """
    if checkpointer.learner.label() == label_of(run, step - 1):
        return
    # wait until a state that is being written is published, because the store finds it only then
    checkpointer.wait()
    start = run.settings.start_step
    done = range(step - 1, start, -1)
    # start at the newest stored state, to repeat as few updates as possible
    whole = (k for k in done if run.store.find(keys.learner(_published(run, k))))
    for earlier in range(next(whole, start) + 1, step):
        before = run.store.resolve(policy_of(run.store, run.name, earlier - 1))
        scored = run.store.artifact(run.layout.step(earlier).scored)
        job = step_job(run, before, scored, _published(run, earlier), earlier)
        checkpointer.learner.update(job, watching("replay", earlier))


def keep_state(run: Run, services: TrainingServices, step: int) -> None:
    """Write the learner state after a step, if it is not stored yet.

    The state is missing if a time limit ends the run after a step that does not save the state.
    Call this function only after the policy of the step was published.
    """
    if not run.settings.update.weights:
        return
    services.player.rest()
    learner = services.learner
    learner.wait()
    target = keys.learner(_published(run, step))
    if run.store.find(target) is None:
        catch_up(run, learner, step + 1)
        learner.now(run.store.publish(target))


def watching(stage: str, step: int) -> OnStep:
    """Return a function that reports the optimizer steps of an update as progress of a stage."""
    return lambda done, total: report(Progress(stage, step, done, total))


def _published(run: Run, step: int) -> ArtifactKey:
    return run.store.artifact(run.layout.step(step).policy).key


def _learner_state(store: Store, policy: ArtifactKey) -> str | None:
    artifact = store.find(keys.learner(policy))
    return str(store.open(artifact)) if artifact else None
