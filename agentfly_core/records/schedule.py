"""The problems that a step plays, and their shards, drawn by the seed; more on demand."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

from agentfly_core.config.experiment import Night, Science
from agentfly_core.formats import hashing


@dataclass(frozen=True, slots=True)
class SamplingRound:
    """Problems of one step that are played together.

    `SamplingRound(step=7, first=0, count=64, greedy=False, shards=range(4))`

    `first` counts in the step's own problems: after the first 64 come those of the dynamic-sampling
    rounds. With `greedy` each problem has one more episode, at temperature 0. `before` counts the
    problems that the run's earlier steps played; only a night's order depends on it.
    """

    step: int
    first: int
    count: int
    greedy: bool
    shards: range
    before: int = 0


def first_round(science: Science, step: int, greedy: bool, before: int = 0) -> SamplingRound:
    """The first round of step 1, 2, ..., which is always played."""
    count = science.rollout.problems
    return SamplingRound(step, 0, count, greedy, _shards(science, count, greedy, 0), before)


def next_round(science: Science, before: SamplingRound, count: int) -> SamplingRound:
    """`count` further problems of the step, in the shards after those of the round `before`."""
    shards = _shards(science, count, before.greedy, before.shards.stop)
    first = before.first + before.count
    return SamplingRound(before.step, first, count, before.greedy, shards, before.before)


def rows_of(science: Science, sampling_round: SamplingRound, size: int) -> list[int]:
    """Which of the training split's `size` problems a round plays: each pass over the data is a new
    permutation, whose end cuts no step.

    A night's passes are epochs (`epoch_order`), and a step may lie across the end of one. Raises
    ValueError when there are fewer problems than one step may need, a night's step: at most half of
    them.
    """
    block = most(science)
    if (needed := block if science.night is None else 2 * block) > size:
        raise ValueError(
            f"A step{' of a night' if science.night else ''} needs {needed} problems, the training "
            f"split has {size}: raise data.train."
        )
    if science.night is None:
        turn, place = divmod(sampling_round.step - 1, size // block)
        first = place * block + sampling_round.first
        return [*_pass_order(science.seed, turn, size)[first : first + sampling_round.count]]
    begins = science.night.epoch * size + science.night.problem
    start = begins + sampling_round.before + sampling_round.first
    played = range(start, start + sampling_round.count)
    orders = {
        epoch: epoch_order(science.seed, epoch, size) for epoch in {i // size for i in played}
    }
    return [orders[i // size][i % size] for i in played]


@functools.lru_cache(maxsize=2)
def _pass_order(seed: int, turn: int, size: int) -> tuple[int, ...]:
    """A pass over `size` problems: each shard of each of its steps asks for it again."""
    order = list(range(size))
    random.Random(hashing.seed(seed, "pass", turn)).shuffle(order)
    return tuple(order)


def epoch_order(seed: int, epoch: int, size: int) -> list[int]:
    """The order in which an epoch of nights plays `size` problems, a permutation of them.

    Two halves, the same in all epochs, are shuffled each for itself, so that no problem comes twice
    within size / 2 of its neighbours, across the end of an epoch either.
    """
    everything = list(range(size))
    random.Random(hashing.seed(seed, "halves")).shuffle(everything)
    middle = (size + 1) // 2
    halves = [everything[:middle], everything[middle:]]
    for number, half in enumerate(halves):
        random.Random(hashing.seed(seed, "epoch", epoch, number)).shuffle(half)
    return [*halves[0], *halves[1]]


def night_after(night: Night, played: int, size: int) -> Night:
    """The next night behind one that played so many problems of a training split of `size`:
    `night_after(Night(number=1), 960, 4096)` is `{number: 2, epoch: 0, problem: 960}`.
    """
    epochs, problem = divmod(night.problem + played, size)
    return Night(number=night.number + 1, epoch=night.epoch + epochs, problem=problem)


def most(science: Science) -> int:
    """The maximum number of problems that one step plays."""
    return science.rollout.problems * (1 + science.rollout.refills)


def _shards(science: Science, problems: int, greedy: bool, first: int) -> range:
    episodes = problems * (science.rollout.group_size + greedy)
    return range(first, first - (-episodes // science.rollout.shard))
