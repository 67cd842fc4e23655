"""Advantages of an algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentfly_core.records.trajectory import Scored, Trajectory

if TYPE_CHECKING:
    from agentfly_core.rl.interface import Algorithm


def advantages_of(
    algorithm: Algorithm, trajectories: Sequence[Trajectory], rewards: Sequence[float]
) -> list[list[float]]:
    """Advantages of sampled tokens by trajectory: `[[1.0, 1.0], [-1.0]]`."""
    from agentfly_core.rl.advantage import sequences  # torch takes seconds
    from agentfly_core.rl.batch import pack
    from agentfly_core.rl.outcomes import outcomes

    batch = pack(trajectories)
    scores = [Scored(t.id, {}, (), reward) for t, reward in zip(trajectories, rewards, strict=True)]
    earned = outcomes(trajectories, scores, {}, {}, batch)
    layout = sequences(batch, len(trajectories))
    advantages = layout.gather(algorithm.estimate_advantages(earned, batch).advantages)
    ends = zip(advantages, layout.lengths.tolist(), strict=True)
    return [line[:length].tolist() for line, length in ends]
