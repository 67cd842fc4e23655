"""Group reward-decoupled normalisation: several rewards, each on its own scale (GDPO, arXiv 2601.05242)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentfly_core.algorithm import Credit, spread
from agentfly_core.algorithms.grpo import standardised
from agentfly_core.batch import RolloutBatch
from agentfly_core.outcomes import Outcomes
from agentfly_core.policy_gradient import PolicyGradient
from agentfly_core.whitening import whitened


@dataclass(frozen=True, kw_only=True)
class GDPO(PolicyGradient):
    """Each reward is standardised in its group as in GRPO, then weighted and summed, then whitened over the batch.

    So a reward that seldom varies is not drowned by one that always does.
    """

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Credit:
        """The same for every sampled token of a trajectory."""
        found = torch.zeros_like(outcomes.rewards)
        for name, weight in outcomes.weights.items():
            found += weight * standardised(outcomes, outcomes.parts[name])
        return Credit.of(whitened(spread(found, batch), batch))
