"""Group relative policy optimisation (GRPO, arXiv 2402.03300).

By default, the loss is the mean over all sampled tokens of an optimizer step, as in DAPO.
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


@dataclass(frozen=True, kw_only=True)
class GRPO(PolicyGradient):
    """The advantage is A = (R - mean) / (std + 1e-6), where R is the reward of an episode.

    The mean and the (unbiased) standard deviation of R are over the episodes of a group. The
    rewards 1, 0, 0, 0 give A = 1.5, -0.5, -0.5, -0.5. If all rewards of a group are equal, A is 0.
    """

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        return Advantages.of(spread(outcomes.compare(standardised, outcomes.rewards), batch))
