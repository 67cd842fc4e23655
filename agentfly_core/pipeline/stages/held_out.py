"""Play the episodes of a held-out evaluation, shard by shard."""

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.playing import of_test
from agentfly_core.pipeline.produce import find
from agentfly_core.pipeline.workers.job import JobPlayer, Shard
from agentfly_core.records.dataset import split
from agentfly_core.store.artifact import Artifact, Pointer


def held_out(
    experiment: Experiment,
    player: JobPlayer,
    policy: Pointer,
    data: Pointer,
    name: str,
    shard: int,
    step: int,
) -> Artifact:
    """Play one shard of the episodes that the policy of a step plays on the split `name`."""
    keys, memory = StageKeys(experiment.settings), experiment.memory_of(policy)
    target = keys.evaluation(policy, data, name, shard, experiment.frozen, memory)
    if published := find(experiment.store, target):
        return published
    settings, problems = experiment.settings, split(experiment.store.open(data), name)
    assigned = of_test(settings.evaluate, settings.data_seed, problems, name)
    mine = Shard("evaluate", step, assigned, shard)
    return player.do(mine.job(target, policy, step, settings.rollout.shard, memory))
