"""The outcomes of an update: the rewards of trajectories and of tokens, the unweighted values
of each reward, and the groups of trajectories. Advantages compare the rewards within each group.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from agentfly_core.records.speakers import episode_numbers, group_of, own_reward, reaches
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.rl.advantage import (
    Sequences,
    first_of_turns,
    last_of_turns,
    sequences,
    varies,
)
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.late import Tensor, torch


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of an update with n trajectories. In the example, n is 2, and both trajectories
    have the same problem. The first trajectory has two turns, and the second has one turn.

        rewards       tensor([1.0, 0.0])             float64 [n], the weighted sum of all rewards
        token_rewards float64 [n, longest], where `longest` is the largest number of sampled tokens
                      of a trajectory. Row i has the rewards of the sampled tokens of trajectory i.
                      The reward of a turn is on its last sampled token. The sum of row i is
                      `rewards[i]`, or 0 if the batch has no sampled tokens of trajectory i.
        parts         {"exact": tensor([1.0, 0.0])}  for each reward, its unweighted values,
                                                     float64 [n]
        weights       {"exact": 1.0}                 the weight of each reward
        groups        ((0, 1),)                      the trajectories of each group, which are
                                                     compared with each other
        episodes      tensor([0, 1])                 int64 [n], the index of each trajectory's
                                                     episode
        states        (("4f2a..", "9b01.."), ("4f2a..",))  for each turn, the state key of the
                      environment before the turn (see `Environment.state_key`). For a turn
                      without a state key, the entry is the text of the messages since the
                      previous turn.
        leaves        ((0, 0), (1,))                 for each turn, the index of the trajectory that
                      sampled the turn. A fork is a trajectory that begins with turns of another
                      trajectory, the parent. The parent or its ancestors sampled these turns.
        baselines     tensor([0.0, 0.0])             float64 [n], the reward of the greedy episode
                                                     of the group, nan without a greedy episode
        tasks         {"single": (0, 1)}             the trajectories of each task

    An entry in `parts` is nan if the task of the trajectory does not have this reward. If an
    episode has several trained speakers, such as worker and worker/2, the episode has a trajectory
    for each of these speakers.
    """

    rewards: Tensor
    token_rewards: Tensor
    parts: Mapping[str, Tensor]
    weights: Mapping[str, float]
    groups: tuple[tuple[int, ...], ...]
    episodes: Tensor
    states: tuple[tuple[str, ...], ...]
    leaves: tuple[tuple[int, ...], ...]
    baselines: Tensor
    tasks: Mapping[str, tuple[int, ...]]

    def reaching(self, bound: float) -> set[int]:
        """Return the indices of the trajectories with a reward of at least `bound`.

        Rewards that are below `bound` only by a rounding error are included.
        """
        return {i for i, reward in enumerate(self.rewards.tolist()) if reaches(reward, bound)}

    def compare(self, how: Callable[..., Tensor], *values: Tensor) -> Tensor:
        """Apply `how` to each group of trajectories. Return one result per trajectory, [n].

        Each tensor in `values` also has one entry for each of the n trajectories. For two tensors,
        the call is `how(first, means_1, means_2)`. `first` has the entries of the first tensor for
        the trajectories of the group. `means_1` has the mean of these entries for each episode of
        the group. `means_2` has the same means of the second tensor. All trajectories of a group
        get 0 if `means_1` contains nan, or if all entries of `means_1` are equal.

        Example with `how=centred`: the rewards 1, 0, 3, 3 in the groups (0, 1) and (2, 3) give 0.5,
        -0.5, 0, 0. Second example: a group has two episodes. The first episode has two trajectories
        with the rewards 1 and 1. The second episode has one trajectory with the reward 0. The
        result is 0.5, 0.5, -0.5, because each episode counts once in the mean.
        """
        results = torch.zeros_like(values[0])
        for group in map(list, self.groups):
            # each episode counts once in the mean, even if it has many speakers of the same role
            _, episode = torch.unique(self.episodes[group], return_inverse=True)
            sizes = torch.bincount(episode)
            means = [
                torch.zeros(len(sizes), dtype=value.dtype).index_add(0, episode, value[group])
                / sizes
                for value in values
            ]
            unknown = means[0].isnan()
            assert bool(unknown.all() == unknown.any()), (
                "all trajectories of a group have this reward, or none has it"
            )
            if varies(means[0]):
                results[group] = how(values[0][group], *means)
        return results


def outcomes(
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    greedy: Mapping[str, float],
    weights: Mapping[str, float],
    batch: RolloutBatch,
    left_out: Sequence[Trajectory] = (),
) -> Outcomes:
    """Return the outcomes of scored trajectories.

    - `greedy`: maps each group to the reward of its greedy episode (an episode at temperature 0)
    - `weights`: the weight of each reward
    - `batch`: the tokens of the trajectories
    - `left_out`: trajectories that the update does not train, for example because their score is
      missing. They may have sampled the first turns of trajectories that branched off from them.

    Raises ValueError if a trajectory is unscored, or if a turn without sampled tokens has a reward.
    """
    scored = list(zip(trajectories, scores, strict=True))
    by_turn = [_by_turn(trajectory, score) for trajectory, score in scored]
    groups = [group_of(trajectory, score) for trajectory, score in scored]
    return Outcomes(
        # float64, because advantages test whether rewards are equal, and weighted sums are rounded
        rewards=_float64(map(earned, scores)),
        token_rewards=_token_rewards(sequences(batch, len(by_turn)), by_turn),
        parts={name: _part(scored, name) for name in weights},
        weights=weights,
        groups=tuple(_places(groups).values()),
        episodes=torch.tensor(episode_numbers(trajectories), dtype=torch.int64),
        states=tuple(map(_states, trajectories)),
        leaves=_leaves(trajectories, left_out),
        baselines=_float64(greedy.get(group, math.nan) for group in groups),
        tasks=_places(one.problem.task for one in trajectories),
    )


def _part(scored: Iterable[tuple[Trajectory, Scored]], name: str) -> Tensor:
    """Return the unweighted value of a reward for each trajectory, float64 [trajectories].

    The value is nan if the task of the trajectory does not have this reward.
    """
    return _float64(
        own_reward(score, name, trajectory.agent) if name in score.rewards else math.nan
        for trajectory, score in scored
    )


def _states(trajectory: Trajectory) -> tuple[str, ...]:
    """Return for each turn a text that identifies the state of the environment before the turn.

    The text has the results of `Environment.state_key`. Without such results, the messages since
    the previous turn are used.
    """
    return tuple(turn.state or repr(turn.read) for turn in trajectory.turns)


def _places(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the indices at which each name occurs: `{"a": (0, 2), "b": (1,)}` for a, b, a."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    return {name: tuple(indices) for name, indices in places.items()}


def _float64(values: Iterable[float]) -> Tensor:
    return torch.tensor([*values], dtype=torch.float64)


def _leaves(
    trajectories: Sequence[Trajectory], left_out: Sequence[Trajectory]
) -> tuple[tuple[int, ...], ...]:
    """Return, for each turn of each trajectory, the number of the trajectory that sampled the turn.

    A fork is a trajectory that begins with turns of another trajectory, the parent. The parent or
    its ancestors sampled these turns. The number of a trajectory is its index in [*trajectories,
    *left_out]. A parent that is not in this list gets the next unused number.
    """
    everything = [*trajectories, *left_out]
    numbers = {one.id: number for number, one in enumerate(everything)}
    leaves: dict[str, tuple[int, ...]] = {}
    # the chain of a parent is smaller than the chains of its forks, so parents come first
    for one in sorted(everything, key=attrgetter("chain")):
        shared: tuple[int, ...] = ()
        if one.branch:
            number = numbers.setdefault(one.branch.parent, len(numbers))
            above = leaves.get(one.branch.parent, (number,) * one.branch.turns)
            shared = above[: one.branch.turns]
        leaves[one.id] = (*shared, *[numbers[one.id]] * (len(one.turns) - len(shared)))
    return tuple(leaves[one.id] for one in trajectories)


def over_leaves(values: Tensor, outcomes: Outcomes, batch: RolloutBatch) -> Tensor:
    """Average the values [rows, T] of tokens that several trajectories have in common.

    A fork is a trajectory that branched off from its parent, so it contains sampled tokens of the
    parent. Such a token gets the mean of its values in all trajectories that contain the token.
    """
    layout = sequences(batch, len(outcomes.leaves))
    tokens = _token_numbers(layout, outcomes.leaves)
    _, places, counts = torch.unique(tokens, return_inverse=True, return_counts=True)
    # in float64 the mean of equal float32 values is exactly this value
    sums = torch.zeros(len(counts), dtype=torch.float64)
    sums.index_add_(0, places.flatten(), layout.gather(values).double().flatten())
    return layout.scatter((sums / counts)[places].to(values.dtype))


def _token_numbers(layout: Sequences, leaves: Sequence[Sequence[int]]) -> Tensor:
    """Return a number for each sampled token, int64 [trajectories, longest]. Padding gets -1.

    `longest` is the largest number of sampled tokens of a trajectory. A fork is a trajectory that
    branched off from its parent, so it contains sampled tokens of the parent. Such a token has the
    same number in the parent and in all forks.
    """
    most = max([1, *map(len, leaves)])
    leaf = torch.zeros(len(leaves), most, dtype=torch.int64)
    for number, own in enumerate(leaves):
        leaf[number, : len(own)] = torch.tensor(own, dtype=torch.int64)
    # a fork may discard an earlier reply, so the column of a common token may differ in each fork
    columns = torch.arange(layout.turns.shape[1]).expand_as(layout.turns)
    starts = torch.where(first_of_turns(layout.turns), columns, 0).cummax(1).values
    turns = layout.turns.clamp(min=0)
    numbers = (leaf.gather(1, turns) * most + turns) * columns.shape[1] + columns - starts
    return torch.where(layout.turns < 0, -1, numbers)


def earned(score: Scored) -> float:
    """Return the reward in a score. Raises ValueError if the trajectory is unscored."""
    if isinstance(score.reward, Unscored):
        raise ValueError(
            f"Trajectory {score.trajectory_id} has no reward: {score.reward.reason}; exclude the "
            "trajectory from the update."
        )
    return score.reward


def _by_turn(trajectory: Trajectory, score: Scored) -> list[float]:
    """Divide the reward of a trajectory among its turns.

    Each turn gets its reward in `Scored.turn_rewards`. The rest of the trajectory's reward is added
    to the last trained turn. The reward of an untrained turn is moved to the closest trained turn
    before it. If no earlier turn is trained, this reward is moved to the first trained turn.
    Raises ValueError if a turn without sampled tokens has a reward.
    """
    rewards = list(score.turn_rewards or [0.0] * len(trajectory.turns))
    turns = list(enumerate(trajectory.turns))
    spoken = [i for i, turn in turns if any(span.tokens for span in turn.sampled)]
    if silent := [i for i, reward in enumerate(rewards) if reward and i not in spoken]:
        raise ValueError(
            f"Turn {silent[0]} of trajectory {trajectory.id} has a reward but no sampled token."
        )
    if trained := [i for i in spoken if trajectory.trains(trajectory.turns[i])]:
        # untrained turns are not in the batch, so trained turns get their rewards
        for greedy in [i for i in spoken if i not in trained]:
            before = max((i for i in trained if i < greedy), default=trained[0])
            rewards[before] += rewards[greedy]
            rewards[greedy] = 0.0
        # the rest of the reward, which is given at the end of the episode
        rewards[trained[-1]] += earned(score) - sum(rewards)
    return rewards


def _token_rewards(layout: Sequences, by_turn: Sequence[Sequence[float]]) -> Tensor:
    """Return the rewards of sampled tokens, float64 [trajectories, longest].

    `longest` is the largest number of sampled tokens of a trajectory. The last sampled token of a
    turn gets the reward of the turn. All other tokens get 0.
    """
    rewards = torch.zeros(layout.turns.shape, dtype=torch.float64)
    last = last_of_turns(layout.turns)
    places = zip(last.nonzero()[:, 0].tolist(), layout.turns[last].tolist(), strict=True)
    rewards[last] = torch.tensor([by_turn[i][turn] for i, turn in places], dtype=torch.float64)
    return rewards
