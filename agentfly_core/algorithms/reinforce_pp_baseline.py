"""REINFORCE++ with the group's mean as baseline (arXiv 2501.03262), whitened over the batch."""

from dataclasses import dataclass

from agentfly_core.rl.advantage import centred, spread, whitened
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class ReinforcePPBaseline(PolicyGradient):
    """A = R - mean over a group, then whitened over the batch's sampled tokens.

    A group with equal rewards has A = 0 before the whitening.
    """

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        advantages = outcomes.compare(centred, outcomes.rewards)
        return Advantages.of(whitened(spread(advantages, batch), batch))
