"""REINFORCE with the others of the group as baseline: leave one out (arXiv 2402.14740)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentfly_core.aggregation import Aggregation, SeqMeanTokenSum
from agentfly_core.algorithm import Credit, spread, within_groups
from agentfly_core.batch import RolloutBatch
from agentfly_core.outcomes import Outcomes
from agentfly_core.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class RLOO(PolicyGradient):
    """A = R - mean of the other trajectories of the group = (R - mean) G / (G - 1).

    Rewards 1, 0, 0, 0 give A = 1, -1/3, -1/3, -1/3. Each trajectory is one action: the sum over its tokens.
    """

    aggregation: Aggregation = SeqMeanTokenSum()

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Credit:
        """The same for every sampled token of a trajectory."""
        others = torch.ones_like(outcomes.rewards)
        for group in outcomes.groups:
            others[list(group)] = len(group) / max(len(group) - 1, 1)
        return Credit.of(spread(within_groups(outcomes, outcomes.rewards) * others, batch))
