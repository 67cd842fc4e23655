"""The warm start: supervised fine-tuning on the reply tokens of demonstrations, in rounds."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agentfly_core.config.parts import WarmStart
from agentfly_core.config.reference import run_step
from agentfly_core.experiment import keys
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import rollouts
from agentfly_core.experiment.run_policies import policy_of, require_same_tokens
from agentfly_core.pipeline import retention
from agentfly_core.pipeline.produce import find, publish
from agentfly_core.pipeline.services import TrainingServices
from agentfly_core.pipeline.stages import policy_update, rejection_sampling
from agentfly_core.pipeline.workers.job import DemonstrationJob, JobPlayer
from agentfly_core.records.dataset import split
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store


def demonstrate(store: Store, player: JobPlayer, job: DemonstrationJob) -> Artifact:
    """Play and publish demonstrations.

    A few trial demonstrations are scored first, to detect rewards that fail.
    """
    return find(store, job.target) or player.do(job)


def choose(
    store: Store, settings: WarmStart, target: ArtifactKey, model: Artifact, data: Artifact
) -> Artifact:
    """Publish successful episodes of another run as demonstrations.

    Only episodes on the training problems of `data` are chosen. They are chosen once, and later
    changes of the other run are ignored. The manifest contains the digests of the episodes.
    """
    if chosen := find(store, target):
        return chosen
    last = run_step(settings.demonstrations)
    assert last is not None
    require_same_tokens(store, settings.demonstrations, policy_of(store, last.run, 0), model)
    steps = rejection_sampling.scored_steps(store, last.run, last.step)
    origins = {one.uri: one.digest for scored in steps for one in (scored, *rollouts(scored))}

    def make(folder: Path) -> Mapping[str, float]:
        training = {problem.id for problem in split(store.open(data), "train")}
        played = rejection_sampling.stored(store, steps, training)
        return rejection_sampling.choose(settings, played, folder)

    return publish(store, replace(target, inputs={**target.inputs, **origins}), make)


def warm_start(
    experiment: Experiment,
    services: TrainingServices,
    model: Artifact,
    demonstrations: Artifact,
    number: int,
) -> Artifact:
    """Publish the policy and the learner state after a round of the warm start.

    `number` counts the rounds from 1.
    """
    target = StageKeys(experiment.settings).warm_start(model, demonstrations, number)
    # both must be stored, because the next round continues with the optimizer state
    if (policy := find(experiment.store, target)) and experiment.store.find(keys.learner(target)):
        return policy
    saving = services.learner.busy()
    retention.require_space(experiment.store, experiment.sizes(model), saving)
    services.player.rest()
    job = policy_update.warm_start_job(experiment, model, demonstrations, number)
    watch = policy_update.watching(f"warm start {number}", 0)
    return policy_update.publish(
        experiment.store, services.learner, job, model, target, services.learner.now, watch
    )
