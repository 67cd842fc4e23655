"""Playing episodes: one shard of a training step, or of a held-out evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measuring, timing
from agentfly_core.artifacts.store import Artifact
from agentfly_core.config.experiment import Science
from agentfly_core.pipeline import playing
from agentfly_core.pipeline.playing import (
    PlayedShard,
    Watch,
    of_step,
    of_test,
    play_shard,
    rollout_spec,
    watching,
)
from agentfly_core.pipeline.services import RolloutServices, tokenizer_of
from agentfly_core.records.dataset import sizes_by_task, split
from agentfly_core.records.problem_schedule import SamplingRound, chosen, kind_of, rows_of_tasks
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.runs.context import ExperimentContext
from agentfly_core.runs.run import Run
from tasks.stage import Made, reused, stage

Work = Callable[[], PlayedShard]
PlayInTurn = Callable[[Work], PlayedShard]
"""Has a shard played when it is its turn: returns and raises what the work does that is given, and
raises asyncio's CancelledError where its turn does not come.
"""


@stage("look whether prompts fit")
def require_room(context: ExperimentContext, model: Artifact, data: Artifact, *names: str) -> None:
    """Raise ValueError for problems of these splits whose prompts leave no room for a reply, and
    for those without the fact by which an evaluation or a curriculum tells them apart.
    """
    problems = {name: split(context.store.open(data), name) for name in names}
    everything = [problem for some in problems.values() for problem in some]
    playing.require_room(context.resolved, tokenizer_of(context, model), everything)
    for problem in problems.get("train", ()):
        kind_of(context.science, problem)
    for name in problems.keys() - {"train"}:
        playing.require_tags(context.science, problems[name])


@dataclass(frozen=True)
class RoundEpisodes:
    """The episodes of one round of a step: `RoundEpisodes(run, data, first_round(science, 7,
    False)).specs`. They are drawn for the first shards that are played, and kept for the others.
    """

    run: Run
    data: Artifact
    sampling_round: SamplingRound

    @cached_property
    def specs(self) -> list[EpisodeSpec]:
        """Those of all shards, in their order."""
        science, drawn = self.run.science, self.sampling_round
        dataset = self.run.store.open(self.data)
        rows = rows_of_tasks(science, drawn, sizes_by_task(dataset, "train", science.tasks))
        problems = chosen(science, drawn, split(dataset, "train", rows))
        return of_step(science, problems, drawn.step, drawn.greedy)


@stage("rollout step {episodes.sampling_round.step} shard {shard}", retries=3)
def rollout(
    play: PlayInTurn,
    services: RolloutServices,
    policy: Artifact,
    version: int,
    episodes: RoundEpisodes,
    shard: int,
) -> Made:
    """Publish one shard of a step's episodes, played with an earlier step's policy."""
    run, drawn = episodes.run, episodes.sampling_round
    step, data, frozen = drawn.step, episodes.data, run.context.frozen
    told = drawn.drawn(run.science)
    target = keys.rollout(run.science, run.name, policy, data, step, shard, told, frozen)
    if found := run.store.find(target):
        return reused(found)
    part = shard - drawn.shards.start
    with run.store.publish(target) as folder:
        watch = watching("rollout", step, part * run.science.rollout.shard, len(episodes.specs))
        mine = _shard_of(run.science, episodes.specs, part)
        _leave(folder, play, run.context, services, policy, version, mine, watch)
    return run.store.artifact(target.uri)


@stage("evaluate {name} step {step} shard {shard}", retries=3)
def held_out(
    play: PlayInTurn,
    context: ExperimentContext,
    services: RolloutServices,
    policy: Artifact,
    data: Artifact,
    name: str,
    shard: int,
    step: int,
) -> Made:
    """Publish one shard of the episodes that a policy plays on a held-out split."""
    target = keys.evaluation(context.science, policy, data, name, shard, context.frozen)
    if found := context.store.find(target):
        return reused(found)
    assigned = of_test(context.science, split(context.store.open(data), name), name)
    with context.store.publish(target) as folder:
        watch = watching("evaluate", step, shard * context.science.rollout.shard, len(assigned))
        mine = _shard_of(context.science, assigned, shard)
        _leave(folder, play, context, services, policy, step, mine, watch)
    return context.store.artifact(target.uri)


def _shard_of(
    science: Science, everything: Sequence[EpisodeSpec], shard: int
) -> Sequence[EpisodeSpec]:
    size = science.rollout.shard
    return everything[shard * size : (shard + 1) * size]


def _leave(
    folder: Path,
    play: PlayInTurn,
    context: ExperimentContext,
    services: RolloutServices,
    policy: Artifact,
    version: int,
    mine: Sequence[EpisodeSpec],
    watch: Watch,
) -> None:
    """Have a shard played and leave it in a folder; its time is that of its turn."""

    def played() -> PlayedShard:
        # a template may use the one tokenizer, which another shard is using meanwhile
        with services.environments.turn, measuring(folder) as metrics:
            spec = rollout_spec(context.resolved, services.tokenizer, services.frozen)
            with timing(metrics, "time/swap"):
                services.load(context, policy, version)
            gates, environments = context.science.gates, services.environments
            shard = play_shard(spec, gates, services.sampler, mine, watch, environments)
            metrics |= shard.metrics
            return shard

    play(played).write(folder)
