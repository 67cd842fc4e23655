"""Soft adaptive policy optimisation (SAPO, arXiv 2511.20347). The ratio of probabilities is limited
by a smooth function instead of clipping.
"""

from dataclasses import dataclass

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.rl import policy_loss as losses
from agentfly_core.rl.aggregation import Aggregation, SeqMeanTokenMean


@dataclass(frozen=True, kw_only=True)
class SAPO(GRPO):
    """GRPO with the policy loss `sapo`. Each trajectory has the same weight, independent of its
    length.
    """

    policy_loss: losses.PolicyLoss = losses.SAPO()
    aggregation: Aggregation = SeqMeanTokenMean()
