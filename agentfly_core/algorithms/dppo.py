"""Divergence proximal policy optimisation (DPPO, arXiv 2602.04879). Bounds apply to probabilities,
not to their ratios.
"""

from dataclasses import dataclass

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.rl import policy_loss as losses


@dataclass(frozen=True, kw_only=True)
class DPPO(GRPO):
    """GRPO with the loss `dppo_tv`. A token's loss is 0 if its probability changed too much."""

    policy_loss: losses.PolicyLoss = losses.DPPO()
