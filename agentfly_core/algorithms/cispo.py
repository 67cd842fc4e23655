"""CISPO (MiniMax-M1, arXiv 2506.13585): the advantages of GRPO with clipped importance weights."""

from dataclasses import dataclass

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.rl import policy_loss as losses


@dataclass(frozen=True, kw_only=True)
class CISPO(GRPO):
    """GRPO with the policy loss `cispo`."""

    policy_loss: losses.PolicyLoss = losses.CISPO()
