"""The warm start: masked supervised fine-tuning on demonstrations, a round at a time."""

from __future__ import annotations

from dataclasses import replace

from agentfly_core.config.reference import run_step
from agentfly_core.experiment import keys
from agentfly_core.experiment.context import ExperimentContext, policy_of, require_same_tokens
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline import rejection_sampling, retention, update
from agentfly_core.pipeline.playing import demonstrate as play_demonstrations
from agentfly_core.pipeline.playing import rehearsed
from agentfly_core.pipeline.rejection_sampling import choose as choose_demonstrations
from agentfly_core.pipeline.scoring import check_rewards
from agentfly_core.pipeline.services import TrainingServices
from agentfly_core.records.dataset import split
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.store.store import Artifact
from tasks.stage import Made, reused, stage


@stage("play demonstrations")
def demonstrate(
    context: ExperimentContext, services: TrainingServices, model: Artifact, data: Artifact
) -> Made:
    """Publish episodes that a script played on training problems, after the rewards scored some."""
    target = StageKeys(context.science).demonstrations(model, data, context.frozen)
    if found := context.store.find(target):
        return reused(found)
    problems = split(context.store.open(data), "train")
    place = (services.environments, services.frozen)
    check_rewards(
        context.resolved, rehearsed(context.resolved, services.tokenizer, problems, *place)
    )
    with context.store.publish(target) as folder, measuring(folder):
        play_demonstrations(
            context.resolved,
            services.tokenizer,
            problems,
            folder,
            *place,
        )
    return context.store.artifact(target.uri)


@stage("choose demonstrations")
def choose(context: ExperimentContext, model: Artifact, data: Artifact) -> Made:
    """Publish the successes among the episodes that another run has stored, of this experiment's
    training problems.

    They are chosen once: what becomes of that run later changes nothing. The manifest names the
    episodes by digest.
    """
    target = StageKeys(context.science).demonstrations(model, data, context.frozen)
    settings = context.science.warm_start
    if found := context.store.find(target):
        return reused(found)
    last = run_step(settings.demonstrations) if settings else None
    assert settings is not None and last is not None
    require_same_tokens(
        context.store, settings.demonstrations, policy_of(context.store, last.run, 0), model
    )
    episodes = rejection_sampling.artifacts(context.store, last.run, last.step)
    target = replace(
        target, inputs={**target.inputs, **{episode.uri: episode.digest for episode in episodes}}
    )
    with context.store.publish(target) as folder, measuring(folder) as metrics:
        training = {problem.id for problem in split(context.store.open(data), "train")}
        played = rejection_sampling.stored(context.store, episodes, training)
        metrics |= choose_demonstrations(context.science, played, folder)
    return context.store.artifact(target.uri)


@stage("warm start round {number}", retries=2)
def warm_start(
    context: ExperimentContext,
    services: TrainingServices,
    model: Artifact,
    demonstrations: Artifact,
    number: int,
) -> Made:
    """Publish the policy after round 1, 2, ... of the warm start, and the learner state that the
    next one needs.
    """
    target = StageKeys(context.science).warm_start(model, demonstrations, number)
    if (found := context.store.find(target)) and context.store.find(keys.learner(target)):
        return reused(found)
    retention.require_space(context, model, services.learner)
    services.rest()
    job = update.warm_start_job(context, model, demonstrations, number)
    watch = update.watching(f"warm start {number}", 0)
    return update.publish(
        context.store, services.learner, job, model, target, services.learner.now, watch
    )
