"""Scoring: rewards that need only the record, run on stored episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentfly_core.experiment.context import ExperimentContext
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.scoring import ScoredShard, score_episodes
from agentfly_core.records.parquet import SCORES, read_scores
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.store.store import Artifact
from tasks.stage import Made, reused, stage


@stage("score {what}")
def score(
    context: ExperimentContext,
    rollouts: Sequence[Artifact],
    step: int,
    what: str,
    before: Artifact | None = None,
    round: int = 0,
    shards: Mapping[Artifact, ScoredShard] = {},
) -> Made:
    """Publish the scores of a step's, or an evaluation's, episodes, and what became of each
    problem.

    Those that are in `before`, or in `shards`, are taken from there; `round` 1, 2, ... of a
    step that may be refilled has its own place.
    """
    target = StageKeys(context.science).scored(rollouts, round)
    if found := context.store.find(target):
        return reused(found)
    earlier = read_scores(context.store.open(before) / SCORES) if before else []
    with context.store.publish(target) as folder, measuring(folder) as metrics:
        metrics |= score_episodes(
            context.resolved,
            [context.store.open(r) for r in rollouts],
            earlier,
            step,
            folder,
            {context.store.open(r): shard for r, shard in shards.items()},
        )
    return context.store.artifact(target.uri)
