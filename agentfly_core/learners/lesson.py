"""What an update learns from: the stored trajectories and scores of a job, as a batch, in groups, in mini-batches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from agentfly_core import identity
from agentfly_core.algorithm import Group
from agentfly_core.batch import RolloutBatch, pack
from agentfly_core.learner import UpdateJob
from agentfly_core.parquet import read_scores, read_trajectories
from agentfly_core.record import Ending, Trajectory, Unscored


@dataclass(frozen=True)
class Lesson:
    """The `trajectories` trajectories of a batch and their groups; `unscored` more were left out."""

    batch: RolloutBatch
    groups: tuple[Group, ...]
    trajectories: int
    unscored: int


def read_lesson(job: UpdateJob) -> Lesson:
    """Read a job's files, leaving out trajectories without a score and failed demonstrations; the batch may be empty.

    Raises ValueError when a trajectory has no row in the scores.
    """
    found = [t for path in job.rollouts for t in read_trajectories(Path(path))]
    rewards = _rewards(found, Path(job.scores)) if job.scores else dict.fromkeys(_whole(found), 0.0)
    kept = [t for t in found if t.id in rewards]
    groups = group(kept, [rewards[t.id] for t in kept]) if job.scores else ()
    return Lesson(pack(kept), groups, len(kept), len(found) - len(kept))


def group(trajectories: Sequence[Trajectory], rewards: Sequence[float]) -> tuple[Group, ...]:
    """The trajectories by their group, in the order in which groups appear."""
    members = defaultdict(list)
    for index, trajectory in enumerate(trajectories):
        members[trajectory.group].append(index)
    return tuple(
        Group(tuple(indices), torch.tensor([rewards[i] for i in indices], dtype=torch.float64))
        for indices in members.values()
    )


def mini_batches(job: UpdateJob, trajectories: Tensor, epochs: int, count: int) -> list[Tensor]:
    """The trajectories of each optimizer step: every epoch deals all of them out anew, in an order given by the seed.

    `job.batch` bounds the trajectories of a step; without it an epoch has `count` steps of about equal size.
    """
    if not len(trajectories):
        return []
    steps = math.ceil(len(trajectories) / job.batch) if job.batch else min(count, len(trajectories))
    found: list[Tensor] = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(identity.seed(job.seed, epoch))
        order = torch.randperm(len(trajectories), generator=generator)
        found += trajectories[order].tensor_split(steps)
    return found


def _whole(trajectories: Sequence[Trajectory]) -> list[str]:
    return [t.id for t in trajectories if t.ending is not Ending.FAILED]


def _rewards(trajectories: Sequence[Trajectory], scores: Path) -> dict[str, float]:
    by_id = {score.trajectory_id: score.reward for score in read_scores(scores)}
    if missing := [t.id for t in trajectories if t.id not in by_id]:
        raise ValueError(f"{scores} has no score for {len(missing)} trajectories, the first is {missing[0]}.")
    return {name: reward for name, reward in by_id.items() if not isinstance(reward, Unscored)}
