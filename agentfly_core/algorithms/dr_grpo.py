"""Dr. GRPO (arXiv 2503.20783): GRPO without the biases from the difficulty of problems and from the
length of trajectories.
"""

from dataclasses import dataclass

from agentfly_core.rl import Advantages, Outcomes, PolicyGradient, RolloutBatch, centred, spread
from agentfly_core.rl.aggregation import Aggregation, SeqSumNorm


@dataclass(frozen=True, kw_only=True)
class DrGRPO(PolicyGradient):
    """The advantage is the reward minus the mean reward of the group.

    The rewards 1, 0, 0, 0 give the advantages 0.75, -0.25, -0.25, -0.25. The loss of a trajectory
    is the sum over its tokens, divided by the constant `aggregation.horizon`. Set this constant to
    about the number of sampled tokens in the longest trajectory.
    """

    aggregation: Aggregation = SeqSumNorm(horizon=1024)

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        return Advantages.of(spread(outcomes.compare(centred, outcomes.rewards), batch))
