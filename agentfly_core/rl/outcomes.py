"""An update's rewards by trajectory, token and name, and the groups that are compared."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentfly_core.records.speakers import episode_numbers, group_of, own_reward
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.rl.advantage import Sequences, last_of_turns, sequences, varies
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.late import Tensor, torch


@dataclass(frozen=True)
class Outcomes:
    """Two trajectories of one problem in one step, the first of two turns:

        rewards       tensor([1.0, 0.0])             float64 [n], the weighted sum of all rewards
        token_rewards float64 [n, longest], in the layout of `sequences`: a turn's reward is on the
                      last token sampled in it; they add up to `rewards`
        parts         {"exact": tensor([1.0, 0.0])}  float64 [n] by reward, unweighted
        weights       {"exact": 1.0}                 by reward
        groups        ((0, 1),)                      trajectories that are compared on one problem
        episodes      tensor([0, 1])                 int64 [n], episode numbers
        states        (("4f2a..", "9b01.."), ("4f2a..",))  state keys before turns
        baselines     tensor([0.0, 0.0])             float64 [n], rewards of greedy episodes, or nan
        tasks         {"single": (0, 1)}             trajectories by task

    Parts are nan for rewards of other tasks. A trajectory without a sampled token has no
    token_rewards. A speaker's instances are several trajectories of an episode.
    """

    rewards: Tensor
    token_rewards: Tensor
    parts: Mapping[str, Tensor]
    weights: Mapping[str, float]
    groups: tuple[tuple[int, ...], ...]
    episodes: Tensor
    states: tuple[tuple[str, ...], ...]
    baselines: Tensor
    tasks: Mapping[str, tuple[int, ...]]

    def compare(self, how: Callable[..., Tensor], *values: Tensor) -> Tensor:
        """`how(own, *means)` by group, with means of values [n] over each episode's trajectories.

        A group gets 0 if its first value is nan, or equal in all episodes. Examples with `centred`:
        rewards 1, 0, 3, 3 in the groups (0, 1), (2, 3) give 0.5, -0.5, 0, 0. Rewards 1, 1, 0 of two
        episodes, the first with two instances, give 0.5, 0.5, -0.5: an episode counts once.
        """
        results = torch.zeros_like(values[0])
        for group in map(list, self.groups):
            # an episode with many instances of a speaker must not outweigh the others in the mean
            _, episode = torch.unique(self.episodes[group], return_inverse=True)
            sizes = torch.bincount(episode)
            means = [
                torch.zeros(len(sizes), dtype=value.dtype).index_add(0, episode, value[group])
                / sizes
                for value in values
            ]
            unknown = means[0].isnan()
            assert bool(unknown.all() == unknown.any()), "a group has a reward or has it not"
            if varies(means[0]):
                results[group] = how(values[0][group], *means)
        return results


def outcomes(
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    greedy: Mapping[str, float],
    weights: Mapping[str, float],
    batch: RolloutBatch,
) -> Outcomes:
    """Outcomes of scored trajectories in `batch`, with rewards of `greedy` episodes by group.

    Raises ValueError for unscored trajectories and for rewards of turns without a sampled token.
    """
    scored = list(zip(trajectories, scores, strict=True))
    by_turn = [_by_turn(trajectory, score) for trajectory, score in scored]
    parts = {
        name: [own_reward(s, name, t.agent) if name in s.rewards else math.nan for t, s in scored]
        for name in weights
    }
    groups = [group_of(trajectory, score) for trajectory, score in scored]
    baselines = [greedy.get(group, math.nan) for group in groups]
    members: defaultdict[str, list[int]] = defaultdict(list)
    states: list[tuple[str, ...]] = []
    of_tasks: defaultdict[str, list[int]] = defaultdict(list)
    for index, trajectory in enumerate(trajectories):
        members[groups[index]].append(index)
        of_tasks[trajectory.problem.task].append(index)
        turns = trajectory.turns
        # the environment's state key, or else the newly read messages
        states.append(tuple(one.state or repr(one.read) for one in turns))
    return Outcomes(
        # float64, because advantages compare rewards for equality, and weighted sums round
        rewards=torch.tensor([earned(score) for score in scores], dtype=torch.float64),
        token_rewards=_token_rewards(sequences(batch, len(by_turn)), by_turn),
        # nan marks a reward that the trajectory's task does not have
        parts={name: torch.tensor(part, dtype=torch.float64) for name, part in parts.items()},
        weights=weights,
        groups=tuple(map(tuple, members.values())),
        episodes=torch.tensor(episode_numbers(trajectories), dtype=torch.int64),
        states=tuple(states),
        baselines=torch.tensor(baselines, dtype=torch.float64),
        tasks={name: tuple(indices) for name, indices in of_tasks.items()},
    )


def earned(score: Scored) -> float:
    """The reward of a scored trajectory; raises ValueError for an unscored one."""
    if isinstance(score.reward, Unscored):
        raise ValueError(
            f"Trajectory {score.trajectory_id} has no reward: {score.reward.reason}; leave it out."
        )
    return score.reward


def _by_turn(trajectory: Trajectory, score: Scored) -> list[float]:
    """Rewards of turns, with the rest added to the last turn with a trained token.

    The reward of a greedy reply counts for the trained one before it, or else for the first.
    """
    rewards = list(score.turn_rewards or [0.0] * len(trajectory.turns))
    turns = list(enumerate(trajectory.turns))
    spoken = [i for i, turn in turns if any(span.tokens for span in turn.sampled)]
    if silent := [i for i, reward in enumerate(rewards) if reward and i not in spoken]:
        raise ValueError(
            f"Turn {silent[0]} of trajectory {trajectory.id} has a reward and no sampled token."
        )
    if trained := [i for i in spoken if trajectory.trains(trajectory.turns[i])]:
        # an untrained turn has no column in the batch; its reward follows from the trained turn
        # before it
        for greedy in [i for i in spoken if i not in trained]:
            before = max((i for i in trained if i < greedy), default=trained[0])
            rewards[before] += rewards[greedy]
            rewards[greedy] = 0.0
        # the rewards that are given at the end of the episode
        rewards[trained[-1]] += earned(score) - sum(rewards)
    return rewards


def _token_rewards(layout: Sequences, by_turn: Sequence[Sequence[float]]) -> Tensor:
    """Each turn's reward at the last token sampled in it, float64 [trajectories, longest]."""
    rewards = torch.zeros(layout.turns.shape, dtype=torch.float64)
    last = last_of_turns(layout.turns)
    places = zip(last.nonzero()[:, 0].tolist(), layout.turns[last].tolist(), strict=True)
    rewards[last] = torch.tensor([by_turn[i][turn] for i, turn in places], dtype=torch.float64)
    return rewards
