"""REINFORCE leave-one-out: the other episodes of the group are the baseline (arXiv 2402.14740)."""

from dataclasses import dataclass

from agentfly_core.rl.advantage import centred, spread
from agentfly_core.rl.aggregation import Aggregation, SeqMeanTokenSum
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class RLOO(PolicyGradient):
    """A = R - mean of the other episodes of the group = (R - mean) G / (G - 1).

    Rewards 1, 0, 0, 0 give A = 1, -1/3, -1/3, -1/3. A trajectory counts as one action: its loss is
    the sum over its tokens. In the first optimizer step the clipped ratio has the gradient of the
    paper's -A log p.
    """

    aggregation: Aggregation = SeqMeanTokenSum()

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        advantages = outcomes.compare(
            lambda own, rewards: centred(own, rewards) * len(rewards) / (len(rewards) - 1),
            outcomes.rewards,
        )
        return Advantages.of(spread(advantages, batch))
