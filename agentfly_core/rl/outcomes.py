"""What the trajectories of an update earned: in all, by turn, by reward; and who is compared with whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentfly_core.formats import hashing
from agentfly_core.records.trajectory import Ending, Scored, Trajectory, Turn, Unscored
from agentfly_core.rl.advantage import sequences
from agentfly_core.rl.batch import RolloutBatch


@dataclass(frozen=True)
class Outcomes:
    """Two trajectories of one problem in one step, the first of two turns:

        rewards       tensor([1.0, 0.0])                float64 [n], the weighted sum of all rewards
        token_rewards float64 [rows, T]: each turn's reward on its last sampled token, they add up to `rewards`
        parts         {"exact": tensor([1.0, 0.0])}     float64 [n] by reward, unweighted
        weights       {"exact": 1.0}                    by reward
        groups        ((0, 1),)                         indices of trajectories
        states        (("4f2a..", "9b01.."), ("4f2a..",))   what each turn was a reply to
        cut           tensor([False, True])             whether the reply, the turns or the context were at their limit
        baselines     tensor([0.0, 0.0])                float64 [n], what the greedy episode earned; nan without one

    A trajectory without a sampled token has a reward and no token_rewards.
    """

    rewards: Tensor
    token_rewards: Tensor
    parts: Mapping[str, Tensor]
    weights: Mapping[str, float]
    groups: tuple[tuple[int, ...], ...]
    states: tuple[tuple[str, ...], ...]
    cut: Tensor
    baselines: Tensor


def outcomes(
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    greedy: Mapping[str, float],
    weights: Mapping[str, float],
    batch: RolloutBatch,
) -> Outcomes:
    """What scored trajectories earned; `batch` is theirs, `greedy` the reward of the greedy episode by group.

    Raises ValueError for an unscored trajectory, and for a reward of a turn in which no token was sampled.
    """
    by_turn = [_by_turn(t, score) for t, score in zip(trajectories, scores, strict=True)]
    return Outcomes(
        rewards=torch.tensor([earned(score) for score in scores], dtype=torch.float64),
        token_rewards=_placed(batch, by_turn),
        parts={name: torch.tensor([s.rewards[name] for s in scores], dtype=torch.float64) for name in weights},
        weights=weights,
        groups=_groups(trajectories),
        states=tuple(tuple(_state(turn) for turn in t.turns) for t in trajectories),
        cut=torch.tensor([_is_cut(t) for t in trajectories], dtype=torch.bool),
        baselines=torch.tensor([greedy.get(t.group, float("nan")) for t in trajectories], dtype=torch.float64),
    )


def earned(score: Scored) -> float:
    """The reward of a scored trajectory; raises ValueError for an unscored one."""
    if isinstance(score.reward, Unscored):
        raise ValueError(f"Trajectory {score.trajectory_id} has no reward: {score.reward.reason}; leave it out.")
    return score.reward


def _by_turn(trajectory: Trajectory, score: Scored) -> list[float]:
    """One number a turn; what no turn earned by itself belongs to the last one with a sampled token."""
    found = list(score.turn_rewards or [0.0] * len(trajectory.turns))
    speaking = [i for i, turn in enumerate(trajectory.turns) if any(span.tokens for span in turn.sampled)]
    if silent := [i for i, reward in enumerate(found) if reward and i not in speaking]:
        raise ValueError(f"Turn {silent[0]} of trajectory {trajectory.id} has a reward and no sampled token.")
    if speaking:
        found[speaking[-1]] += earned(score) - sum(found)
    return found


def _placed(batch: RolloutBatch, by_turn: Sequence[Sequence[float]]) -> Tensor:
    """Each turn's reward at its last sampled token, float64 [rows, T]."""
    found = torch.zeros(batch.sampled.shape, dtype=torch.float64)
    layout = sequences(batch, len(by_turn))
    turns = torch.where(layout.present, layout.gather(batch.turn), -1)
    last = layout.present & (turns != torch.cat([turns[:, 1:], torch.full((len(turns), 1), -1)], dim=1))
    here = torch.zeros_like(batch.sampled).masked_scatter(batch.sampled, last[layout.line, layout.column])
    for row, t in here.nonzero().tolist():
        found[row, t] = by_turn[int(batch.trajectory[row])][int(batch.turn[row, t])]
    return found


def _groups(trajectories: Sequence[Trajectory]) -> tuple[tuple[int, ...], ...]:
    members = defaultdict(list)
    for index, trajectory in enumerate(trajectories):
        members[trajectory.group].append(index)
    return tuple(map(tuple, members.values()))


def _state(turn: Turn) -> str:
    """What the environment calls its state, or else what the model newly read."""
    return turn.state or hashing.short(*map(repr, turn.read))


def _is_cut(trajectory: Trajectory) -> bool:
    finishes = [span.finish for turn in trajectory.turns[-1:] for span in turn.sampled[-1:]]
    return "length" in finishes or trajectory.ending in (Ending.MAX_TURNS, Ending.MAX_MODEL_LEN)
