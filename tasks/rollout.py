"""Playing episodes: one shard of a training step, or of a held-out evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agentfly_core.experiment.context import ExperimentContext
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.models.adapter_artifact import config_of
from agentfly_core.models.model_config import require_positions
from agentfly_core.pipeline import playing
from agentfly_core.pipeline.playing import of_step, of_test, play_shard, rollout_spec, watching
from agentfly_core.pipeline.services import RolloutServices, tokenizer_of
from agentfly_core.records.dataset import sizes_by_task, split
from agentfly_core.records.problem_schedule import SamplingRound, chosen, kind_of, rows_of_tasks
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.runs.run import Run
from agentfly_core.store.stage_metrics import measuring, timing
from agentfly_core.store.store import Artifact
from tasks.stage import Made, reused, stage


@stage("look whether prompts fit")
def require_room(context: ExperimentContext, model: Artifact, data: Artifact, *names: str) -> None:
    """Raise ValueError for a model with fewer positions than `agent.max_model_len`, for problems of
    these splits whose prompts leave no room for a reply, and for those without the fact by which an
    evaluation or a curriculum tells them apart.
    """
    if config := config_of(context.store, model):
        limit = context.science.agent.max_model_len
        require_positions(config, limit, context.science.model)
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
    False)).specs`. They are drawn for the first shard that is played, and kept for the others.
    """

    run: Run
    data: Artifact
    sampling_round: SamplingRound

    @cached_property
    def specs(self) -> list[EpisodeSpec]:
        """Those of all shards, in their order."""
        science, drawn = self.run.science, self.sampling_round
        dataset = self.run.store.open(self.data)
        rows = rows_of_tasks(science, drawn, sizes_by_task(dataset, science.tasks))
        problems = chosen(science, drawn, split(dataset, "train", rows))
        return of_step(science, problems, drawn.step, drawn.greedy)


@stage("rollout step {episodes.sampling_round.step} shard {shard}", retries=3)
def rollout(
    services: RolloutServices, policy: Artifact, version: int, episodes: RoundEpisodes, shard: int
) -> Made:
    """Publish one shard of a step's episodes, played with an earlier step's policy."""
    run, drawn = episodes.run, episodes.sampling_round
    step, data, frozen = drawn.step, episodes.data, run.context.frozen
    told = drawn.drawn(run.science)
    target = StageKeys(run.science).rollout(run.name, policy, data, step, shard, told, frozen)
    if found := run.store.find(target):
        return reused(found)
    part = shard - drawn.shards.start
    with run.store.publish(target) as folder, measuring(folder) as metrics:
        metrics |= _play(
            run.context, services, policy, version, episodes.specs, part, "rollout", step, folder
        )
    return run.store.artifact(target.uri)


@stage("evaluate {name} step {step} shard {shard}", retries=3)
def held_out(
    context: ExperimentContext,
    services: RolloutServices,
    policy: Artifact,
    data: Artifact,
    name: str,
    shard: int,
    step: int,
) -> Made:
    """Publish one shard of the episodes that a policy plays on a held-out split."""
    target = StageKeys(context.science).evaluation(policy, data, name, shard, context.frozen)
    if found := context.store.find(target):
        return reused(found)
    assigned = of_test(context.science, split(context.store.open(data), name), name)
    with context.store.publish(target) as folder, measuring(folder) as metrics:
        metrics |= _play(context, services, policy, step, assigned, shard, "evaluate", step, folder)
    return context.store.artifact(target.uri)


def _play(
    context: ExperimentContext,
    services: RolloutServices,
    policy: Artifact,
    version: int,
    everything: Sequence[EpisodeSpec],
    shard: int,
    stage: str,
    step: int,
    folder: Path,
) -> dict[str, float]:
    metrics: dict[str, float] = {}
    size = context.science.rollout.shard
    watch = watching(stage, step, shard * size, len(everything))
    with services.environments.turn:
        # here, since a template may use the one tokenizer, which another shard is using meanwhile
        spec = rollout_spec(context.resolved, services.tokenizer, services.frozen)
        with timing(metrics, "time/swap"):
            services.load(context, policy, version)
        mine = everything[shard * size : (shard + 1) * size]
        return metrics | play_shard(
            spec,
            context.science.gates,
            services.sampler,
            mine,
            folder,
            watch,
            services.environments,
        )
