"""Playing episodes: one shard of a training step, or of a held-out evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measuring, timing
from agentfly_core.artifacts.store import Artifact
from agentfly_core.pipeline import playing
from agentfly_core.pipeline.playing import of_shard, of_step, of_test, play_shard, watching
from agentfly_core.pipeline.services import Playground, environments_at, sampler_at, tokenizer_of
from agentfly_core.records.dataset import split
from agentfly_core.records.schedule import Deal, dealt
from agentfly_core.rollout.episode import Assignment
from agentfly_core.runs.run import Lab, Run
from tasks.stage import Made, reused, stage


@stage("look whether prompts fit")
def require_room(lab: Lab, model: Artifact, data: Artifact, *names: str) -> None:
    """Raise ValueError for problems of these splits whose prompts leave no room for a reply."""
    folder, tokenizer = lab.store.open(data), tokenizer_of(lab.store.open(model))
    playing.require_room(lab.science, tokenizer, [problem for name in names for problem in split(folder, name)])


@stage("rollout step {deal.step} shard {shard}", retries=3)
def rollout(
    run: Run, policy: Artifact, version: int, data: Artifact, ground: Playground, deal: Deal, shard: int
) -> Made:
    """Publish one shard of a step's episodes, played with an earlier step's policy."""
    slot = keys.rollout(run.science, run.name, policy, data, deal, shard)
    if found := run.store.find(slot):
        return reused(found)
    assigned = of_step(run.science, dealt(run.science, deal, split(run.store.open(data), "train")), deal.step)
    part = shard - deal.shards.start
    with run.store.publish(slot) as folder, measuring(folder) as metrics:
        metrics |= _play(run.lab, ground, policy, version, assigned, part, "rollout", deal.step, folder)
    return run.store.artifact(slot.uri)


@stage("evaluate {name} step {step} shard {shard}", retries=3)
def held_out(lab: Lab, policy: Artifact, data: Artifact, ground: Playground, name: str, shard: int, step: int) -> Made:
    """Publish one shard of the episodes that a policy plays on a held-out split."""
    slot = keys.evaluation(lab.science, policy, data, name, shard)
    if found := lab.store.find(slot):
        return reused(found)
    assigned = of_test(lab.science, split(lab.store.open(data), name), name)
    with lab.store.publish(slot) as folder, measuring(folder) as metrics:
        metrics |= _play(lab, ground, policy, step, assigned, shard, "evaluate", step, folder)
    return lab.store.artifact(slot.uri)


def _play(
    lab: Lab,
    ground: Playground,
    policy: Artifact,
    version: int,
    everything: Sequence[Assignment],
    shard: int,
    stage: str,
    step: int,
    folder: Path,
) -> dict[str, float]:
    metrics: dict[str, float] = {}
    size, home = lab.science.rollout.shard, environments_at(ground.environments)
    watch, mine = watching(stage, step, shard * size, len(everything)), of_shard(everything, size, shard)
    tokenizer = tokenizer_of(lab.store.open(policy))
    with home.turn:
        with timing(metrics, "time/swap"):
            sampler = sampler_at(ground.sampler, lab, policy, version)
        return metrics | play_shard(lab.science, tokenizer, sampler, mine, folder, watch, home)
