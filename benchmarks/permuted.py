"""GRPO that learns from rewards dealt out at random: the control that shows learning comes from the rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from agentfly_core.algorithm import Credit, Group
from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.batch import RolloutBatch


@dataclass(frozen=True)
class PermutedGRPO(GRPO):
    """GRPO over the same rewards in another order, drawn anew for each batch over all its trajectories."""

    def advantages(self, groups: Sequence[Group], batch: RolloutBatch) -> Credit:
        """The advantages of rewards that belong to other trajectories."""
        rewards = torch.cat([group.rewards for group in groups])
        generator = torch.Generator().manual_seed(int(batch.tokens.sum()) % 2**31)
        dealt = rewards[torch.randperm(len(rewards), generator=generator)]
        parts = dealt.split([len(group.rewards) for group in groups])
        return super().advantages([replace(g, rewards=p) for g, p in zip(groups, parts, strict=True)], batch)
