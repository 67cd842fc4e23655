"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300), with the token mean of DAPO
(2503.14476).
"""

from __future__ import annotations

from dataclasses import dataclass

from agentfly_core.rl.advantage import spread, standardised, within_groups
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class GRPO(PolicyGradient):
    """A = (R - mean) / (std + 1e-6) over the trajectories of a group; 0 for one alone or where all
    are equal.

    Rewards 1, 0, 0, 0 give A = 1.5, -0.5, -0.5, -0.5.
    """

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """One per trajectory."""
        return Advantages.of(
            spread(within_groups(outcomes.groups, standardised, outcomes.rewards), batch)
        )
