"""The rewards of an update by trajectory, by token and by name, and the groups to compare."""

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
    """Outcomes of an update. Example: two trajectories of one problem, the first with two turns.

        rewards       tensor([1.0, 0.0])             float64 [n], the weighted sum of all rewards
        token_rewards float64 [n, longest], in the layout of `sequences`: a turn's reward is on its
                      last sampled token; a row adds up to the entry in `rewards`
        parts         {"exact": tensor([1.0, 0.0])}  float64 [n] by reward, unweighted
        weights       {"exact": 1.0}                 by reward
        groups        ((0, 1),)                      trajectories that are compared on one problem
        episodes      tensor([0, 1])                 int64 [n], episode numbers
        states        (("4f2a..", "9b01.."), ("4f2a..",))  state keys before turns
        leaves        ((0, 0), (1,))                 for each turn, the trajectory that
                      sampled it: ((0, 0), (0, 1)) if the second is a fork of the first
        baselines     tensor([0.0, 0.0])             float64 [n], rewards of greedy episodes, or nan
        tasks         {"single": (0, 1)}             trajectories by task

    A part is nan if the trajectory's task does not have this reward. A trajectory without a sampled
    token has no token_rewards. If a speaker has several instances, such as worker/1 and worker/2,
    the episode has a trajectory for each instance.
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
        """Return the indices of trajectories with a reward of at least `bound`, within rounding."""
        return {i for i, reward in enumerate(self.rewards.tolist()) if reaches(reward, bound)}

    def compare(self, how: Callable[..., Tensor], *values: Tensor) -> Tensor:
        """Apply `how(own, *means)` to each group of trajectories.

        `own` has the group's entries of `values[0]`. For each tensor in `values`, `means` has one
        value per episode: the mean over the episode's trajectories. A group gets 0 if its
        `values[0]` are nan, or if all its episodes have the same mean.

        Examples with `centred`: Rewards 1, 0, 3, 3 in the groups (0, 1), (2, 3) give 0.5, -0.5, 0,
        0. If the first of two episodes has two trajectories, the rewards (1, 1) and (0) give 0.5,
        0.5, -0.5, because each episode counts once in the mean.
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
    """Make the Outcomes of the scored trajectories in `batch`.

    `greedy` maps groups to the rewards of their greedy episodes. `left_out` has trajectories that
    the update does not train, for example without a score; they may be parents of forks.

    Raises ValueError for unscored trajectories and for rewards of turns without a sampled token.
    """
    scored = list(zip(trajectories, scores, strict=True))
    by_turn = [_by_turn(trajectory, score) for trajectory, score in scored]
    groups = [group_of(trajectory, score) for trajectory, score in scored]
    return Outcomes(
        # float64, because advantages test rewards for equality, and weighted sums round
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
    """Return a reward's values [n], nan for trajectories of tasks without this reward."""
    return _float64(
        own_reward(score, name, trajectory.agent) if name in score.rewards else math.nan
        for trajectory, score in scored
    )


def _states(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the environment's state key before each turn. Without a state key, the messages read
    in that turn serve as the key.
    """
    return tuple(turn.state or repr(turn.read) for turn in trajectory.turns)


def _places(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the indices of each name: `{"a": (0, 2), "b": (1,)}` for a, b, a."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    return {name: tuple(indices) for name, indices in places.items()}


def _float64(values: Iterable[float]) -> Tensor:
    return torch.tensor([*values], dtype=torch.float64)


def _leaves(
    trajectories: Sequence[Trajectory], left_out: Sequence[Trajectory]
) -> tuple[tuple[int, ...], ...]:
    """Return for each turn the number of the trajectory that sampled it.

    Numbers are indices in [*trajectories, *left_out]. A parent in neither has a number above all
    others.
    """
    everything = [*trajectories, *left_out]
    numbers = {one.id: number for number, one in enumerate(everything)}
    leaves: dict[str, tuple[int, ...]] = {}
    # a parent's chain is below its children's chains
    for one in sorted(everything, key=attrgetter("chain")):
        shared: tuple[int, ...] = ()
        if one.branch:
            number = numbers.setdefault(one.branch.parent, len(numbers))
            above = leaves.get(one.branch.parent, (number,) * one.branch.turns)
            shared = above[: one.branch.turns]
        leaves[one.id] = (*shared, *[numbers[one.id]] * (len(one.turns) - len(shared)))
    return tuple(leaves[one.id] for one in trajectories)


def over_leaves(values: Tensor, outcomes: Outcomes, batch: RolloutBatch) -> Tensor:
    """Average each sampled token's values [rows, T] over all trajectories that share the token."""
    layout = sequences(batch, len(outcomes.leaves))
    tokens = _token_numbers(layout, outcomes.leaves)
    _, places, counts = torch.unique(tokens, return_inverse=True, return_counts=True)
    # in float64 the mean of equal float32 values is exactly this value
    sums = torch.zeros(len(counts), dtype=torch.float64)
    sums.index_add_(0, places.flatten(), layout.gather(values).double().flatten())
    return layout.scatter((sums / counts)[places].to(values.dtype))


def _token_numbers(layout: Sequences, leaves: Sequence[Sequence[int]]) -> Tensor:
    """Number the sampled tokens, int64 [trajectories, longest]; padding has -1.

    A token that forks share has the same number in all its trajectories.
    """
    most = max([1, *map(len, leaves)])
    leaf = torch.zeros(len(leaves), most, dtype=torch.int64)
    for number, own in enumerate(leaves):
        leaf[number, : len(own)] = torch.tensor(own, dtype=torch.int64)
    # a fork may discard an earlier reply, so a shared token may have another column in each fork
    columns = torch.arange(layout.turns.shape[1]).expand_as(layout.turns)
    starts = torch.where(first_of_turns(layout.turns), columns, 0).cummax(1).values
    turns = layout.turns.clamp(min=0)
    numbers = (leaf.gather(1, turns) * most + turns) * columns.shape[1] + columns - starts
    return torch.where(layout.turns < 0, -1, numbers)


def earned(score: Scored) -> float:
    """Return the reward of a scored trajectory. Raises ValueError for an unscored one."""
    if isinstance(score.reward, Unscored):
        raise ValueError(
            f"Trajectory {score.trajectory_id} has no reward: {score.reward.reason}; exclude the "
            "trajectory from the update."
        )
    return score.reward


def _by_turn(trajectory: Trajectory, score: Scored) -> list[float]:
    """Distribute a trajectory's reward over its turns.

    The part of the reward that belongs to no turn goes to the last turn with a trained token. The
    reward of an untrained reply goes to the trained reply before it, or else to the first trained
    reply.
    """
    rewards = list(score.turn_rewards or [0.0] * len(trajectory.turns))
    turns = list(enumerate(trajectory.turns))
    spoken = [i for i, turn in turns if any(span.tokens for span in turn.sampled)]
    if silent := [i for i, reward in enumerate(rewards) if reward and i not in spoken]:
        raise ValueError(
            f"Turn {silent[0]} of trajectory {trajectory.id} has a reward but no sampled token."
        )
    if trained := [i for i in spoken if trajectory.trains(trajectory.turns[i])]:
        # untrained turns are not in the batch; their rewards go to the trained turn before them
        for greedy in [i for i in spoken if i not in trained]:
            before = max((i for i in trained if i < greedy), default=trained[0])
            rewards[before] += rewards[greedy]
            rewards[greedy] = 0.0
        # the rewards that are given at the end of the episode
        rewards[trained[-1]] += earned(score) - sum(rewards)
    return rewards


def _token_rewards(layout: Sequences, by_turn: Sequence[Sequence[float]]) -> Tensor:
    """Put each turn's reward on its last sampled token, float64 [trajectories, longest]."""
    rewards = torch.zeros(layout.turns.shape, dtype=torch.float64)
    last = last_of_turns(layout.turns)
    places = zip(last.nonzero()[:, 0].tolist(), layout.turns[last].tolist(), strict=True)
    rewards[last] = torch.tensor([by_turn[i][turn] for i, turn in places], dtype=torch.float64)
    return rewards
