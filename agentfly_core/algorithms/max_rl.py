"""Maximum likelihood reinforcement learning: rare successes count for more (MaxRL, arXiv 2602.02710)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentfly_core.algorithm import Credit, spread, within_groups
from agentfly_core.batch import RolloutBatch
from agentfly_core.outcomes import Outcomes
from agentfly_core.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class MaxRL(PolicyGradient):
    """A = (R - mean) / (mean + 1e-6) over a group; 0 where the mean is 0.

    Rewards 1, 0, 0, 0 give A = 3, -1, -1, -1.
    """

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Credit:
        """The same for every sampled token of a trajectory; raises ValueError for a reward below 0."""
        if bool((outcomes.rewards < 0).any()):
            raise ValueError(f"MaxRL needs rewards of 0 and more, got {float(outcomes.rewards.min()):g}.")
        means = outcomes.rewards.clone()
        for group in map(list, outcomes.groups):
            means[group] = outcomes.rewards[group].mean()
        found = torch.where(means > 0, within_groups(outcomes, outcomes.rewards) / (means + 1e-6), 0.0)
        return Credit.of(spread(found, batch))
