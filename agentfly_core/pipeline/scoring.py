"""Scoring stored episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.authoring import injection
from agentfly_core.authoring.reward import score
from agentfly_core.pipeline.stop_conditions import stop_if_unscored
from agentfly_core.records import ledger
from agentfly_core.records.parquet import EPISODES, SCORES, read_trajectories, write_scores
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.timing import read_timings
from agentfly_core.records.trajectory import Scored
from agentfly_core.runs.context import Resolved
from agentfly_core.runs.metrics import rollout_metrics
from agentfly_core.system.progress import Progress, report


def score_episodes(
    resolved: Resolved, rollouts: Sequence[Path], known: Sequence[Scored], step: int, folder: Path
) -> dict[str, float]:
    """Score stored episodes and leave scores and ledger in `folder`; returns the rollout's metrics.

    Those that are `known` are not scored again; a baseline's count neither in the ledger nor in the
    metrics. Raises GateClosed when more, baselines too, could not be scored than the experiment
    allows.
    """
    everything = [t for rollout in rollouts for t in read_trajectories(rollout / EPISODES)]
    by_id = {one.trajectory_id: one for one in known}
    unknown = [t for t in everything if t.id not in by_id]
    main = injection.name(resolved.agent)
    fresh = asyncio.run(score(unknown, resolved.rewards, main))
    by_id |= {one.trajectory_id: one for one in fresh}
    graded = [by_id[t.id] for t in everything]
    write_scores(folder / SCORES, graded)
    stop_if_unscored(everything, graded, resolved.science.gates.unscored)
    played = [t for t in everything if t.role != "baseline"]
    scores = [by_id[t.id] for t in played]
    ledger.write(folder, ledger.ledger(step, played, scores))
    timings = [timing for rollout in rollouts for timing in read_timings(rollout)]
    metrics = rollout_metrics(
        played, scores, timings, resolved.goal, [tool.name for tool in resolved.tools]
    )
    episodes = len(by_episode(played))
    report(Progress("score", step, episodes, episodes, metrics.get("agent/rollout/reward")))
    return metrics
