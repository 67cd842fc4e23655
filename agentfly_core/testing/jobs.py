"""Updates on trajectories that are at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentfly_core.config.experiment import AlgorithmPart, Update
from agentfly_core.records.parquet import write_scores, write_trajectories
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
    """The first update of a policy on trajectories, each with its reward; both are written to a folder.

    `dataclasses.replace` changes the rest. See `agentfly_core.training.data.read_update_data`.
    """
    scores = [Scored(t.id, {}, (), reward) for t, reward in zip(trajectories, rewards, strict=True)]
    write_trajectories(folder / "trajectories.parquet", trajectories)
    write_scores(folder / "scores.parquet", scores)
    return UpdateJob(
        start=f"{FRESH}policy",
        end="step/1",
        policy=str(policy),
        learner=None,
        rollouts=(str(folder / "trajectories.parquet"),),
        scores=str(folder / "scores.parquet"),
        algorithm=algorithm,
        rewards={},
        update=update,
        batch=None,
        temperature=1.0,
        dtype="float32",
        seed=1,
        reference=None,
    )
