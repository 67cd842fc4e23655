"""Group-in-group policy optimisation: replies to the same state are compared, too (GiGPO, arXiv 2505.10978)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from agentfly_core.algorithm import Credit, spread, within_groups
from agentfly_core.batch import RolloutBatch
from agentfly_core.outcomes import Outcomes
from agentfly_core.policy_gradient import PolicyGradient
from agentfly_core.sequences import sequences


@dataclass(frozen=True, kw_only=True)
class GiGPO(PolicyGradient):
    """A = A_episode + weight A_turn, both a difference from the mean: of a group's rewards, and of a state's returns.

    A turn's return is sum of gamma^(j - k) r_j over its own and later turns j >= k. A turn whose state no other turn of
    the same problem and step has gets A_turn = 0. What a state is, the environment says (`state_key`).
    """

    gamma: Annotated[float, Field(ge=0.0, le=1.0)] = 0.95
    weight: Annotated[float, Field(ge=0.0)] = 1.0

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Credit:
        """The same for every sampled token of a turn."""
        by_turn = self._by_turn(outcomes, self._returns(outcomes, batch))
        of_turns = by_turn[batch.trajectory.unsqueeze(1), batch.turn] * batch.sampled
        episode = spread(within_groups(outcomes, outcomes.rewards), batch)
        return Credit.of(episode + self.weight * of_turns.float())

    def _returns(self, outcomes: Outcomes, batch: RolloutBatch) -> Tensor:
        """The discounted return of each turn, float64 [trajectories, most turns]."""
        turns = max((len(states) for states in outcomes.states), default=0)
        layout = sequences(batch, len(outcomes.rewards))
        rewards = torch.zeros(len(outcomes.states), max(turns, 1), dtype=torch.float64)
        numbers = layout.gather(batch.turn)
        rewards.scatter_add_(1, numbers, layout.gather(outcomes.token_rewards))
        for k in reversed(range(turns - 1)):
            rewards[:, k] += self.gamma * rewards[:, k + 1]
        return rewards

    def _by_turn(self, outcomes: Outcomes, returns: Tensor) -> Tensor:
        found = torch.zeros_like(returns)
        for group in outcomes.groups:
            places = defaultdict(list)
            for i in group:
                for turn, state in enumerate(outcomes.states[i]):
                    places[state].append((i, turn))
            for same in places.values():
                lines, columns = torch.tensor(same).unbind(1)
                mine = returns[lines, columns]
                found[lines, columns] = mine - mine.mean()
        return found
