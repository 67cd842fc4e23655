"""REINFORCE++ with the mean reward of the group as the baseline (arXiv 2501.03262)."""

from dataclasses import dataclass

from agentfly_core.rl import (
    Advantages,
    Outcomes,
    PolicyGradient,
    RolloutBatch,
    centred,
    spread,
    whitened,
)


@dataclass(frozen=True, kw_only=True)
class ReinforcePPBaseline(PolicyGradient):
    """The advantage is the normalised difference between the reward and the group's mean reward.

    The differences are normalised to mean 0 and variance 1 over all sampled tokens of the batch. If
    all rewards of a group are equal, the differences of this group are 0 before the normalisation.
    """

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        advantages = outcomes.compare(centred, outcomes.rewards)
        return Advantages.of(whitened(spread(advantages, batch), batch))
