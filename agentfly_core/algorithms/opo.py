"""On-policy optimisation with the baseline of minimum variance (OPO, arXiv 2505.23585)."""

from dataclasses import dataclass

from agentfly_core.rl import Advantages, Outcomes, PolicyGradient, RolloutBatch, sequences, spread
from agentfly_core.rl.aggregation import Aggregation, SeqMeanTokenSum
from agentfly_core.rl.policy_loss import Clip, PolicyLoss


@dataclass(frozen=True, kw_only=True)
class OPO(PolicyGradient):
    """The advantage is A = R - sum(len R) / sum(len), where the sums are over a group.

    R is the reward of a trajectory, and len is its number of sampled tokens. If all rewards of a
    group are equal, A is 0. Example: two trajectories with 30 and 10 tokens and the rewards 1 and 0
    have A = 0.25 and -0.75.

    By default, the probability ratio is clipped as in PPO. In the first optimizer step, the
    gradient is equal to the gradient of the paper's loss -A log p. Clipping also allows further
    optimizer steps on the same episodes.
    """

    policy_loss: PolicyLoss = Clip()
    aggregation: Aggregation = SeqMeanTokenSum()

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        lengths = sequences(batch, len(outcomes.rewards)).lengths.double()
        advantages = outcomes.compare(
            lambda own, rewards, lengths: own - lengths @ rewards / lengths.sum(),
            outcomes.rewards,
            lengths,
        )
        return Advantages.of(spread(advantages, batch))
