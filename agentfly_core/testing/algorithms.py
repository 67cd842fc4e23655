"""What an algorithm makes of rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentfly_core.records.trajectory import Scored, Trajectory

if TYPE_CHECKING:
    from agentfly_core.rl.interface import Algorithm


def advantages_of(
    algorithm: Algorithm, trajectories: Sequence[Trajectory], rewards: Sequence[float]
) -> list[list[float]]:
    """The advantage of each sampled token, by trajectory: `[[1.0, 1.0], [-1.0]]` of two that earned
    1 and 0 with two tokens and one.
    """
    from agentfly_core.rl.batch import pack  # torch takes seconds
    from agentfly_core.rl.outcomes import outcomes

    batch = pack(trajectories)
    scores = [Scored(t.id, {}, (), reward) for t, reward in zip(trajectories, rewards, strict=True)]
    earned = outcomes(trajectories, scores, {}, {}, batch)
    advantages = algorithm.estimate_advantages(earned, batch).advantages[batch.sampled]
    owners = batch.trajectory.unsqueeze(1).expand_as(batch.sampled)[batch.sampled]
    return [advantages[owners == index].tolist() for index in range(len(trajectories))]
