"""On-policy optimisation with the baseline of least variance (OPO, arXiv 2505.23585)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentfly_core.aggregation import Aggregation, SeqMeanTokenSum
from agentfly_core.algorithm import Credit, spread
from agentfly_core.batch import RolloutBatch
from agentfly_core.losses import PolicyLoss, Reinforce
from agentfly_core.outcomes import Outcomes
from agentfly_core.policy_gradient import PolicyGradient
from agentfly_core.sequences import sequences


@dataclass(frozen=True, kw_only=True)
class OPO(PolicyGradient):
    """A = R - sum(len R) / sum(len) over a group, with len the sampled tokens; 0 for one alone or where all are equal.

    Rewards 1 and 0 of 30 and 10 tokens give A = 0.25 and -0.75. Meant for one optimizer step an update.
    """

    policy_loss: PolicyLoss = Reinforce()
    aggregation: Aggregation = SeqMeanTokenSum()

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Credit:
        """The same for every sampled token of a trajectory."""
        rewards, lengths = outcomes.rewards, sequences(batch, len(outcomes.rewards)).lengths.double()
        found = torch.zeros_like(rewards)
        for group in map(list, outcomes.groups):
            if bool((rewards[group] != rewards[group[0]]).any()):
                found[group] = rewards[group] - (lengths[group] @ rewards[group]) / lengths[group].sum()
        return Credit.of(spread(found, batch))
