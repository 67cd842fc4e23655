"""Scoring: rewards that need only the record, run on stored episodes."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.stage_metrics import measuring
from agentfly_core.artifacts.store import Artifact
from agentfly_core.pipeline.scoring import score_episodes
from agentfly_core.records.parquet import SCORES, read_scores
from agentfly_core.runs.run import Lab
from tasks.stage import Made, reused, stage


@stage("score {what}")
def score(
    lab: Lab, rollouts: Sequence[Artifact], step: int, what: str, before: Artifact | None = None, round: int = 0
) -> Made:
    """Publish the scores of a step's, or an evaluation's, episodes, and what became of each problem.

    Those that are in `before` are taken from there; `round` 1, 2, ... of a step that may be refilled has its own place.
    """
    slot = keys.scored(lab.science, rollouts, round)
    if found := lab.store.find(slot):
        return reused(found)
    known = read_scores(lab.store.open(before) / SCORES) if before else []
    with lab.store.publish(slot) as folder, measuring(folder) as metrics:
        metrics |= score_episodes(lab.science, [lab.store.open(r) for r in rollouts], known, step, folder)
    return lab.store.artifact(slot.uri)
