"""GRPO with permuted rewards: a control, in which a policy must not learn."""

from dataclasses import dataclass, replace

import torch

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages
from agentfly_core.rl.outcomes import Outcomes


@dataclass(frozen=True, kw_only=True)
class PermutedGRPO(GRPO):
    """GRPO with the rewards of a batch in a random order.

    So a trajectory usually gets the reward of a different trajectory.
    """

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Compute advantages from permuted rewards."""
        generator = torch.Generator().manual_seed(int(batch.tokens.sum()) % 2**31)
        problems_of = outcomes.rewards[torch.randperm(len(outcomes.rewards), generator=generator)]
        return super().advantages(replace(outcomes, rewards=problems_of), batch)
