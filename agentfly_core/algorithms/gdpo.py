"""Group reward-decoupled normalisation: each reward is normalised by itself (GDPO, arXiv
2601.05242).
"""

from dataclasses import dataclass

from agentfly_core.rl.advantage import spread, standardised, whitened_by_task
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages
from agentfly_core.rl.late import torch
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class GDPO(PolicyGradient):
    """Each reward is standardised by group as in GRPO. The weighted sum is whitened by task.

    Rewards that vary little keep their effect. A group with equal rewards has A = 0 before the
    whitening. Raises ValueError if the KL penalty is part of the reward.
    """

    def __post_init__(self) -> None:
        if self.kl and self.kl.in_rewards:
            raise ValueError(
                "algorithm.kl: GDPO normalises each reward by itself, so a penalty cannot be "
                f"subtracted from rewards. Got use: {self.kl.use}, expected use: loss."
            )

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        total = torch.zeros_like(outcomes.rewards)
        for name, weight in outcomes.weights.items():
            total += weight * outcomes.compare(standardised, outcomes.parts[name])
        return Advantages.of(whitened_by_task(outcomes.tasks, spread(total, batch), batch))
