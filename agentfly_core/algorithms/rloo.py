"""REINFORCE leave-one-out (RLOO, arXiv 2402.14740). The baseline of an episode is the mean reward
of the other episodes in its group.
"""

from dataclasses import dataclass

from agentfly_core.rl import Advantages, Outcomes, PolicyGradient, RolloutBatch, centred, spread
from agentfly_core.rl.aggregation import Aggregation, SeqMeanTokenSum


@dataclass(frozen=True, kw_only=True)
class RLOO(PolicyGradient):
    """The advantage is the reward minus the mean reward of the other episodes in the group.

    This equals A = (R - mean) G / (G - 1), where `mean` is the mean reward of all G episodes of
    the group. The rewards 1, 0, 0, 0 give the advantages 1, -1/3, -1/3, -1/3. A trajectory counts
    as one action: its loss is the sum over its tokens.

    By default, the probability ratio is clipped as in PPO. In the first optimizer step, the
    gradient is equal to the gradient of the paper's loss -A log p.
    """

    aggregation: Aggregation = SeqMeanTokenSum()

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        advantages = outcomes.compare(
            lambda own, rewards: centred(own, rewards) * len(rewards) / (len(rewards) - 1),
            outcomes.rewards,
        )
        return Advantages.of(spread(advantages, batch))
