"""Compute the advantages of an algorithm, and make the inputs of a learner's update."""

from collections.abc import Sequence
from pathlib import Path

from agentfly_core.config.experiment import Update
from agentfly_core.config.parts import AlgorithmPart
from agentfly_core.records.parquet import EPISODES, SCORES, write_scores, write_trajectories
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.rl.advantage import sequences
from agentfly_core.rl.batch import pack
from agentfly_core.rl.interface import Algorithm
from agentfly_core.rl.outcomes import outcomes
from agentfly_core.training.job import FRESH, UpdateJob

GRPO = AlgorithmPart(use="agentfly_core.algorithms.grpo:GRPO")


def advantages_of(
    algorithm: Algorithm, trajectories: Sequence[Trajectory], rewards: Sequence[float]
) -> list[list[float]]:
    """Return the advantage of each sampled token, in one list per trajectory.

    For two trajectories with two and one sampled tokens, the result is like `[[1.0, 1.0], [-1.0]]`.
    `rewards` has a reward for each trajectory.
    """
    batch = pack(trajectories)
    scores = [Scored(t.id, {}, (), reward) for t, reward in zip(trajectories, rewards, strict=True)]
    earned = outcomes(trajectories, scores, {}, {}, batch)
    layout = sequences(batch, len(trajectories))
    advantages = layout.gather(algorithm.estimate_advantages(earned, batch).advantages)
    ends = zip(advantages, layout.lengths.tolist(), strict=True)
    return [line[:length].tolist() for line, length in ends]


def update_job(
    folder: Path,
    trajectories: Sequence[Trajectory],
    rewards: Sequence[float | Unscored],
    policy: Path = Path("policy"),
    algorithm: AlgorithmPart = GRPO,
    update: Update = Update(mini_batches=1),  # noqa: B008 - it is frozen
) -> UpdateJob:
    """Make a job for a learner: the first update of a policy on these trajectories.

    `rewards` has a reward for each trajectory. The files of the job are written to `folder`. To
    change further fields of the job, use `dataclasses.replace`.
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
