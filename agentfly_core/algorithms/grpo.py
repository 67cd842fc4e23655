"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300), with the token mean of DAPO (2503.14476)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentfly_core.algorithm import Credit, spread
from agentfly_core.batch import RolloutBatch
from agentfly_core.outcomes import Outcomes
from agentfly_core.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class GRPO(PolicyGradient):
    """A = (R - mean) / (std + 1e-6) over the trajectories of a group; 0 for one alone or where all are equal.

    Rewards 1, 0, 0, 0 give A = 1.5, -0.5, -0.5, -0.5.
    """

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Credit:
        """The same for every sampled token of a trajectory."""
        return Credit.of(spread(standardised(outcomes, outcomes.rewards), batch))


def standardised(outcomes: Outcomes, values: Tensor) -> Tensor:
    """Each trajectory's value [n] less its group's mean, over the group's unbiased standard deviation."""
    found = torch.zeros_like(values)
    for group in outcomes.groups:
        mine = values[list(group)]
        if bool((mine != mine[0]).any()):
            found[list(group)] = (mine - mine.mean()) / (mine.std() + 1e-6)
    return found
