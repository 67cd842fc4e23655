"""On-policy optimisation with the minimum-variance baseline (OPO, arXiv 2505.23585)."""

from dataclasses import dataclass

from agentfly_core.rl.advantage import sequences, spread
from agentfly_core.rl.aggregation import Aggregation, SeqMeanTokenSum
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_gradient import PolicyGradient
from agentfly_core.rl.policy_loss import Clip, PolicyLoss


@dataclass(frozen=True, kw_only=True)
class OPO(PolicyGradient):
    """A = R - sum(len R) / sum(len) over a group, where len counts sampled tokens; 0 for equal
    rewards.

    Example: two trajectories with 30 and 10 tokens and rewards 1 and 0 have A = 0.25 and -0.75. In
    the first optimizer step, the clipped ratio has the gradient of the paper's -A log p. Unlike -A
    log p, the clipped ratio allows several steps.
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
