"""Divergence proximal policy optimisation (DPPO, arXiv 2602.04879). The loss limits the change of
a token's probability, while PPO limits the ratio of the probabilities.
"""

from dataclasses import dataclass

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.rl import policy_loss as losses


@dataclass(frozen=True, kw_only=True)
class DPPO(GRPO):
    """GRPO with the policy loss `dppo_tv`.

    The loss of a token is 0 if its advantage is above 0 and its probability exceeds the probability
    at sampling by more than `high`. The loss is also 0 if the advantage is 0 or less and the
    probability is below the probability at sampling by more than `low`.
    """

    policy_loss: losses.PolicyLoss = losses.DPPO()
