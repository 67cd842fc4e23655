"""The problems that a step plays, and their shards, drawn by the seed; more on demand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core.config.experiment import Science
from agentfly_core.formats import hashing
from agentfly_core.records.trajectory import Problem


@dataclass(frozen=True, slots=True)
class SamplingRound:
    """Problems of one step that are played together.

    `SamplingRound(step=7, first=0, count=64, greedy=False, shards=range(4))`

    `first` counts in the step's own problems: after the first 64 come those of the dynamic-sampling
    rounds. With `greedy` each problem has one more episode, at temperature 0.
    """

    step: int
    first: int
    count: int
    greedy: bool
    shards: range


def first_round(science: Science, step: int, greedy: bool) -> SamplingRound:
    """The first round of step 1, 2, ..., which is always played."""
    count = science.rollout.problems
    return SamplingRound(step, 0, count, greedy, _shards(science, count, greedy, 0))


def next_round(science: Science, before: SamplingRound, count: int) -> SamplingRound:
    """`count` further problems of the step, in the shards after those of the round `before`."""
    shards = _shards(science, count, before.greedy, before.shards.stop)
    return SamplingRound(before.step, before.first + before.count, count, before.greedy, shards)


def problems_of(
    science: Science, sampling_round: SamplingRound, problems: Sequence[Problem]
) -> list[Problem]:
    """A round's problems: each pass over the data is a new permutation, whose end cuts no step.

    Raises ValueError when there are fewer problems than one step may need.
    """
    block = most(science)
    a_pass = len(problems) // block
    if a_pass == 0:
        raise ValueError(
            f"A step needs {block} problems, the training split has {len(problems)}: raise "
            "data.train."
        )
    turn, place = divmod(sampling_round.step - 1, a_pass)
    order = list(range(len(problems)))
    random.Random(hashing.seed(science.seed, "pass", turn)).shuffle(order)
    first = place * block + sampling_round.first
    return [problems[i] for i in order[first : first + sampling_round.count]]


def most(science: Science) -> int:
    """The maximum number of problems that one step plays."""
    return science.rollout.problems * (1 + science.rollout.refills)


def _shards(science: Science, problems: int, greedy: bool, first: int) -> range:
    episodes = problems * (science.rollout.group_size + greedy)
    return range(first, first - (-episodes // science.rollout.shard))
