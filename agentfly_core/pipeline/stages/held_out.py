"""Play the episodes of a held-out evaluation in shards (batches of episodes)."""

from dataclasses import dataclass
from functools import cached_property

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.playing import of_test
from agentfly_core.pipeline.produce import find
from agentfly_core.pipeline.workers.job import JobPlayer, Shard
from agentfly_core.records.dataset import split
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.store.artifact import Artifact, Pointer


@dataclass(frozen=True)
class HeldOutEpisodes:
    """The episodes of an evaluation on a split: `HeldOutEpisodes(experiment, data, "test").specs`.

    The episodes are drawn once, when the first shard needs them.
    """

    experiment: Experiment
    data: Pointer
    split: str

    @cached_property
    def specs(self) -> list[EpisodeSpec]:
        """The episodes of all shards in the order in which they are played."""
        settings = self.experiment.settings
        problems = split(self.experiment.store.open(self.data), self.split)
        return of_test(settings.evaluate, settings.data_seed, problems, self.split)


def held_out(
    player: JobPlayer, policy: Pointer, episodes: HeldOutEpisodes, shard: int, step: int
) -> Artifact:
    """Play one shard of an evaluation of `policy`, the policy after `step`. `shard` is an index."""
    experiment, data, name = episodes.experiment, episodes.data, episodes.split
    settings, memory = experiment.settings, experiment.memory_of(policy)
    target = StageKeys(settings).evaluation(policy, data, name, shard, experiment.frozen, memory)
    if published := find(experiment.store, target):
        return published
    mine = Shard("evaluate", step, episodes.specs, shard)
    return player.do(mine.job(target, policy, step, settings.rollout.shard, memory))
