"""Group-in-group policy optimisation (GiGPO, arXiv 2505.10978). It compares the episodes of a
problem, and also the turns of these episodes that begin in the same state of the environment.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from agentfly_core.rl import (
    Advantages,
    Outcomes,
    PolicyGradient,
    RolloutBatch,
    centred,
    sequences,
    spread,
    within_groups,
)
from agentfly_core.rl.late import torch


@dataclass(frozen=True, kw_only=True)
class GiGPO(PolicyGradient):
    """The advantage is A = A_episode + weight A_turn.

    A group has the trajectories of one problem and role. A_episode is the reward minus the mean
    reward of the group. A_turn is the return of the turn minus the mean return of the group's turns
    with the same state (`state_key`). The return of turn k is the sum of gamma^(j - k) r_j over the
    turns j >= k, where r_j is the reward of turn j. If a state occurs only once in the trajectories
    of the group, A_turn is 0.
    """

    gamma: Annotated[float, Field(ge=0.0, le=1.0)] = 0.95
    weight: Annotated[float, Field(ge=0.0)] = 1.0

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        """Return the metrics of the base class, and `train/compared_turns`.

        This metric is the share of turns that begin in the same state as another turn of the same
        group. If the share is 0, A_turn is 0 for every turn. `GiGPO` explains groups and A_turn.
        """
        alike = [len(turns) for turns in _alike(outcomes)]
        # without turns, the share is unknown; metrics that are nan are left out
        shared = sum(turns for turns in alike if turns > 1) / sum(alike) if alike else math.nan
        return {**super().measures(outcomes, batch), "train/compared_turns": shared}

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        turns = max((len(states) for states in outcomes.states), default=0)
        width = max(turns, 1)
        # the discounted return of each turn, float64 [trajectories, largest number of turns]
        returns = torch.zeros(len(outcomes.states), width, dtype=torch.float64)
        layout = sequences(batch, len(outcomes.rewards))
        returns.scatter_add_(1, layout.turns.clamp(min=0), outcomes.token_rewards)
        for k in reversed(range(turns - 1)):
            returns[:, k] += self.gamma * returns[:, k + 1]
        places = [[i * width + turn for i, turn in alike] for alike in _alike(outcomes)]
        by_turn = within_groups(places, centred, returns.flatten()).view_as(returns)
        of_turns = by_turn[batch.trajectory.unsqueeze(1), batch.turn] * batch.sampled
        episode = spread(outcomes.compare(centred, outcomes.rewards), batch)
        return Advantages.of(episode + self.weight * of_turns.float())


def _alike(outcomes: Outcomes) -> list[list[tuple[int, int]]]:
    """Divide the turns of each group into lists of turns that begin in the same state.

    A turn is a pair of indices: the index of the trajectory, and the index of the turn in it.
    """
    groups = defaultdict(list)
    for number, group in enumerate(outcomes.groups):
        for i in group:
            for turn, state in enumerate(outcomes.states[i]):
                groups[number, state].append((i, turn))
    return list(groups.values())
