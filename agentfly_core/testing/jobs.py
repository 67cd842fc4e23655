"""Jobs for a learner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentfly_core.config.experiment import Update
from agentfly_core.config.parts import AlgorithmPart
from agentfly_core.records.parquet import EPISODES, SCORES, write_scores, write_trajectories
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.training.job import FRESH, UpdateJob

GRPO = AlgorithmPart(use="agentfly_core.algorithms.grpo:GRPO")


def update_job(
    folder: Path,
    trajectories: Sequence[Trajectory],
    rewards: Sequence[float | Unscored],
    policy: Path = Path("policy"),
    algorithm: AlgorithmPart = GRPO,
    update: Update = Update(mini_batches=1),  # noqa: B008 - it is frozen
) -> UpdateJob:
    """The first update of a policy on trajectories with these rewards, written to `folder`.

    `dataclasses.replace` changes other fields of the job.
    """
    scores = [Scored(t.id, {}, (), reward) for t, reward in zip(trajectories, rewards, strict=True)]
    write_trajectories(folder / EPISODES, trajectories)
    write_scores(folder / SCORES, scores)
    return UpdateJob(
        start=f"{FRESH}policy",
        end="step/1",
        policy=str(policy),
        learner=None,
        rollouts=(str(folder / EPISODES),),
        scores=str(folder / SCORES),
        algorithm=algorithm,
        rewards={},
        update=update,
        batch=None,
        temperature=1.0,
        dtype="float32",
        seed=1,
        reference=None,
    )
