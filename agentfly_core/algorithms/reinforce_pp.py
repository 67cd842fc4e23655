"""REINFORCE++ (arXiv 2501.03262): token returns, whitened over the batch; no groups needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from agentfly_core.rl.advantage import sequences, whitened
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages, Needs
from agentfly_core.rl.late import torch
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_gradient import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class ReinforcePP(PolicyGradient):
    """G_t = r_t + gamma G_(t+1) over a trajectory's sampled tokens, then whitened.

    With gamma 0.5 a reward of 1 on the last of three tokens gives returns 0.25, 0.5, 1.
    """

    gamma: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0

    @property
    def needs(self) -> Needs:
        return replace(super().needs, compares_group=False)

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        rewards = outcomes.token_rewards
        returns, after = torch.zeros_like(rewards), torch.zeros(len(rewards), dtype=rewards.dtype)
        for t in reversed(range(rewards.shape[1])):
            after = rewards[:, t] + self.gamma * after
            returns[:, t] = after
        return Advantages.of(whitened(sequences(batch, len(rewards)).scatter(returns), batch))
