"""Play the episodes of a training step, or of a held-out evaluation, in shards (batches)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.playing import of_step, of_test
from agentfly_core.pipeline.produce import find
from agentfly_core.pipeline.workers.job import JobPlayer, RolloutJob
from agentfly_core.records.dataset import sizes_by_task, split
from agentfly_core.records.problem_schedule import SamplingRound
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.system.progress import Progress


@dataclass(frozen=True)
class RoundEpisodes:
    """The episodes of one round of a step: `RoundEpisodes(run, data, first_round).specs`.

    Usually a step has a single round. With `rollout.refills`, a step may have further rounds. If
    all episodes of a problem have the same reward, a further round plays another problem instead.
    The episodes are drawn when `specs` is read for the first time.
    """

    run: Run
    data: Pointer
    sampling_round: SamplingRound

    @cached_property
    def specs(self) -> list[EpisodeSpec]:
        """The episodes of this round of the step, in the order in which they are played."""
        settings, drawn = self.run.settings, self.sampling_round
        dataset = self.run.store.open(self.data)
        schedule = self.run.experiment.schedule
        rows = schedule.rows(drawn, sizes_by_task(dataset))
        problems = schedule.chosen(drawn, split(dataset, "train", rows))
        return of_step(
            settings.rollout, settings.seeds_of(drawn.step), problems, drawn.step, drawn.greedy
        )


@dataclass(frozen=True)
class HeldOutEpisodes:
    """The episodes of an evaluation on a split: `HeldOutEpisodes(experiment, data, "test").specs`.

    The episodes are drawn when `specs` is read for the first time.
    """

    experiment: Experiment
    data: Pointer
    split: str

    @cached_property
    def specs(self) -> list[EpisodeSpec]:
        """The episodes of the evaluation, in the order in which they are played."""
        settings = self.experiment.settings
        problems = split(self.experiment.store.open(self.data), self.split)
        return of_test(settings.evaluate, settings.data_seed, problems, self.split)


def rollout(
    player: JobPlayer, policy: Pointer, version: int, episodes: RoundEpisodes, shard: int
) -> Artifact:
    """Play one batch (a shard) of a step's episodes.

    `version` is the step after which `policy` was published. `shard` is the index of the batch in
    the step.
    """
    run, drawn = episodes.run, episodes.sampling_round
    step, data, frozen = drawn.step, episodes.data, run.experiment.frozen
    problems, memory = drawn.drawn(run.experiment.schedule), run.experiment.memory_of(policy)
    target = StageKeys(run.settings).rollout(
        run.name, policy, data, step, shard, problems, frozen, memory
    )
    if published := find(run.store, target):
        return published
    # the indices of a later round's shards continue after the shards of the earlier rounds
    number, size = shard - drawn.shards.start, run.settings.rollout.beginnings_of_shard
    mine, progress = shard_of("rollout", step, episodes.specs, number, size)
    pointer = Pointer(policy.uri, policy.digest)
    return player.do(RolloutJob(target, pointer, version, mine, progress, memory))


def held_out(
    player: JobPlayer, policy: Pointer, episodes: HeldOutEpisodes, shard: int, step: int
) -> Artifact:
    """Play one batch (a shard) of an evaluation.

    `policy` is the policy after `step`. `shard` is the index of the batch in the evaluation.
    """
    experiment, data, name = episodes.experiment, episodes.data, episodes.split
    settings, memory = experiment.settings, experiment.memory_of(policy)
    target = StageKeys(settings).evaluation(policy, data, name, shard, experiment.frozen, memory)
    if published := find(experiment.store, target):
        return published
    mine, progress = shard_of("evaluate", step, episodes.specs, shard, settings.rollout.shard)
    pointer = Pointer(policy.uri, policy.digest)
    return player.do(RolloutJob(target, pointer, step, mine, progress, memory))


def shard_of(
    stage: str, step: int, specs: Sequence[EpisodeSpec], number: int, size: int
) -> tuple[tuple[EpisodeSpec, ...], Progress]:
    """Return the episodes of a batch (a shard), and the progress of the stage before this batch.

    `number` is the index of the batch, and `size` is the number of episodes in each batch.
    """
    start = number * size
    done, total = (sum(one.leaves for one in some) for some in (specs[:start], specs))
    return tuple(specs[start : start + size]), Progress(stage, step, done, total)
