"""The warm start: masked supervised fine-tuning on demonstrations, a round at a time."""

from __future__ import annotations

from dataclasses import replace

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measuring
from agentfly_core.artifacts.store import Artifact
from agentfly_core.config.experiment import step_named
from agentfly_core.pipeline import rejection_sampling, retention, update
from agentfly_core.pipeline.playing import demonstrate as play_demonstrations
from agentfly_core.pipeline.rejection_sampling import choose as choose_demonstrations
from agentfly_core.pipeline.services import environments_at, rest, saving, tokenizer_of
from agentfly_core.records.dataset import split
from agentfly_core.runs.run import Lab, policy_of, require_same_tokens
from agentfly_core.system.service import Service
from tasks.stage import Made, reused, stage


@stage("play demonstrations")
def demonstrate(lab: Lab, model: Artifact, data: Artifact, environments: Service) -> Made:
    """Publish episodes that a script played on training problems."""
    slot = keys.demonstrations(lab.science, model, data)
    if found := lab.store.find(slot):
        return reused(found)
    with lab.store.publish(slot) as folder, measuring(folder):
        tokenizer, problems = tokenizer_of(lab.store.open(model)), split(lab.store.open(data), "train")
        play_demonstrations(lab.science, tokenizer, problems, folder, environments_at(environments))
    return lab.store.artifact(slot.uri)


@stage("choose demonstrations")
def choose(lab: Lab, model: Artifact, data: Artifact) -> Made:
    """Publish the successes among the episodes that another run has stored, of this experiment's training problems.

    They are chosen once: what becomes of that run later changes nothing. The manifest names the episodes by digest.
    """
    slot, settings = keys.demonstrations(lab.science, model, data), lab.science.warm_start
    if found := lab.store.find(slot):
        return reused(found)
    named = step_named(settings.demonstrations) if settings else None
    assert settings is not None and named is not None
    require_same_tokens(lab.store, settings.demonstrations, policy_of(lab.store, named[0], 0), model)
    episodes = rejection_sampling.artifacts(lab.store, *named)
    slot = replace(slot, inputs={**slot.inputs, **{episode.uri: episode.digest for episode in episodes}})
    with lab.store.publish(slot) as folder, measuring(folder) as metrics:
        training = [problem.id for problem in split(lab.store.open(data), "train")]
        played = rejection_sampling.of_problems(rejection_sampling.stored(lab.store, episodes), training)
        metrics |= choose_demonstrations(lab.science, played, folder)
    return lab.store.artifact(slot.uri)


@stage("warm start round {number}", retries=2)
def warm_start(
    lab: Lab, model: Artifact, demonstrations: Artifact, sampler: Service, service: Service, number: int
) -> Made:
    """Publish the policy after round 1, 2, ... of the warm start, and the learner state that the next one needs."""
    slot = keys.warm_start(lab.science, model, demonstrations, number)
    if (found := lab.store.find(slot)) and lab.store.find(keys.learner(slot)):
        return reused(found)
    states = saving(service)
    retention.require_space(lab, model, states)
    rest(sampler, lab)
    job = update.warm_start_job(lab, model, demonstrations, number)
    watch = update.watching(f"warm start {number}", 0)
    return update.publish(lab.store, states, job, model, slot, states.now, watch)
