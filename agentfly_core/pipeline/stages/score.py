"""Scoring: rewards that need only the record, run on stored episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.produce import produce
from agentfly_core.pipeline.scoring import ScoredShard, score_episodes
from agentfly_core.records.parquet import SCORES, read_scores
from agentfly_core.store.store import Artifact


def score(
    experiment: Experiment,
    rollouts: Sequence[Artifact],
    step: int,
    what: str,
    before: Artifact | None = None,
    round: int = 0,
    shards: Mapping[Artifact, ScoredShard] = {},
) -> Artifact:
    """The scores and the ledger of a step's, or an evaluation's, episodes.

    Scores in `before`, those of an earlier round, and in `shards` are reused. `round` 1, 2, ... of
    a step with refills has its own artifact; `what` names the stage in logs.
    """
    target = StageKeys(experiment.settings).scored(rollouts, round)

    def make(folder: Path) -> Mapping[str, float]:
        store = experiment.store
        folders = [store.open(rollout) for rollout in rollouts]
        earlier = read_scores(store.open(before) / SCORES) if before else []
        ready = {store.open(rollout): shard for rollout, shard in shards.items()}
        return score_episodes(experiment, folders, earlier, step, folder, ready)

    return produce(experiment.store, target, make)
