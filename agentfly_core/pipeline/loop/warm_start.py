"""The warm start: demonstrations, then supervised fine-tuning in rounds."""

from __future__ import annotations

from agentfly_core.config.reference import run_step
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.services import TrainingServices
from agentfly_core.store.artifact import Artifact


def warm_started(
    stages: Stages,
    experiment: Experiment,
    services: TrainingServices,
    model: Artifact,
    data: Artifact,
) -> list[Artifact]:
    """Return the demonstrations and the policy of each round; empty without an own warm start."""
    if (settings := experiment.settings.own_warm_start) is None:
        return []
    if run_step(settings.demonstrations):
        target = StageKeys(experiment.settings).demonstrations(model, data, experiment.frozen)
        demonstrations = stages.choose(experiment.store, settings, target, model, data)
    else:
        demonstrations = stages.demonstrate(experiment, services, model, data)
    rounds = range(1, settings.rounds + 1)
    return [
        demonstrations,
        *(stages.warm_start(experiment, services, model, demonstrations, n) for n in rounds),
    ]
