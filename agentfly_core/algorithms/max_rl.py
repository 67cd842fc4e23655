"""Maximum likelihood reinforcement learning (MaxRL, arXiv 2602.02710).

A success has a larger advantage if successes are rare in its group of episodes.
"""

from dataclasses import dataclass

from agentfly_core.rl import Advantages, Outcomes, PolicyGradient, RolloutBatch, centred, spread


@dataclass(frozen=True, kw_only=True)
class MaxRL(PolicyGradient):
    """The advantage is A = (R - mean) / (mean + 1e-6), where R is the reward of an episode.

    The mean of R is over the episodes of a group. The rewards 1, 0, 0, 0 give A = 3, -1, -1, -1. If
    the mean is 0, A is 0. Raises ValueError for a KL penalty that is subtracted from rewards.
    """

    def __post_init__(self) -> None:
        if self.kl and self.kl.in_rewards:
            raise ValueError(
                f"algorithm.kl.use: got {self.kl.use!r}, expected 'loss'. MaxRL needs rewards of "
                "at least 0, but a KL penalty can make them negative."
            )

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Compute the advantages. Raises ValueError if a reward is below 0."""
        if bool((outcomes.rewards < 0).any()):
            raise ValueError(
                f"MaxRL needs rewards of at least 0, got {float(outcomes.rewards.min()):g}. Change "
                "the reward, or choose another algorithm."
            )
        advantages = outcomes.compare(
            lambda own, rewards: centred(own, rewards) / (rewards.mean() + 1e-6), outcomes.rewards
        )
        return Advantages.of(spread(advantages, batch))
