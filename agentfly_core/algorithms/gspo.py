"""Group sequence policy optimisation (GSPO, arXiv 2507.18071). The ratio of probabilities is
computed for whole sequences instead of single tokens.
"""

from dataclasses import dataclass

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.rl import policy_loss as losses
from agentfly_core.rl.aggregation import Aggregation, SeqMeanTokenMean


@dataclass(frozen=True, kw_only=True)
class GSPO(GRPO):
    """GRPO with the policy loss `gspo`. Each trajectory has the same weight, independent of its
    length.
    """

    policy_loss: losses.PolicyLoss = losses.GSPO()
    aggregation: Aggregation = SeqMeanTokenMean()
