"""Group reward-decoupled normalisation (GDPO, arXiv 2601.05242). Each reward is normalised
separately.
"""

from dataclasses import dataclass

from agentfly_core.rl import (
    Advantages,
    Outcomes,
    PolicyGradient,
    RolloutBatch,
    spread,
    standardised,
)
from agentfly_core.rl.advantage import whitened_by_task
from agentfly_core.rl.late import torch


@dataclass(frozen=True, kw_only=True)
class GDPO(PolicyGradient):
    """The advantage is the weighted sum of separately standardised rewards.

    Each reward is standardised within each group, as in GRPO. A reward that varies only a little
    therefore keeps its effect. A reward that is equal in all episodes of a group adds 0 to the sum.
    The weighted sum of the standardised rewards is then normalised to mean 0 and variance 1 over
    all sampled tokens of the batch. In a mixture of tasks, the sums of each task are normalised
    separately. Raises ValueError for a KL penalty that is subtracted from rewards.
    """

    def __post_init__(self) -> None:
        if self.kl and self.kl.in_rewards:
            raise ValueError(
                f"algorithm.kl.use: got {self.kl.use!r}, expected 'loss'. GDPO normalises each "
                "reward separately, so the KL penalty cannot be subtracted from the rewards."
            )

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        total = torch.zeros_like(outcomes.rewards)
        for name, weight in outcomes.weights.items():
            total += weight * outcomes.compare(standardised, outcomes.parts[name])
        return Advantages.of(whitened_by_task(outcomes.tasks, spread(total, batch), batch))
