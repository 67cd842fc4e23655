"""Building blocks of RL algorithms: advantages, losses, KL penalties, importance sampling,
aggregation and batches.
"""

from agentfly_core.rl.advantage import (
    centred,
    sequences,
    spread,
    standardised,
    whitened,
    within_groups,
)
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages, Loss, Needs, Outputs
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_gradient import PolicyGradient

__all__ = [
    "Advantages",
    "Loss",
    "Needs",
    "Outcomes",
    "Outputs",
    "PolicyGradient",
    "RolloutBatch",
    "centred",
    "sequences",
    "spread",
    "standardised",
    "whitened",
    "within_groups",
]
