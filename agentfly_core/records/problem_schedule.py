"""Draw the problems of each step from the seed, and divide them into shards (batches of episodes
that are played together). A refill is a further round of problems in the same step. It replaces
problems that cannot train the policy, because all their episodes have equal rewards.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentfly_core.config.episodes import Rollout
from agentfly_core.config.experiment import Night, OrderPosition
from agentfly_core.config.tasks import SINGLE
from agentfly_core.records.trajectory import Problem, tag
from agentfly_core.system.formats import hashing

SELDOM = 0.01
"""The number that is added to each sampling weight of a curriculum. With this addition, kinds of
problems that are always or never solved are still drawn sometimes.
"""


def by_task(problems: Iterable[Problem], tasks: Collection[str]) -> dict[str, list[Problem]]:
    """Group problems by task, in the order of `tasks`: `{"single": [Problem(...), ...]}`."""
    grouped: dict[str, list[Problem]] = {name: [] for name in tasks}
    for problem in problems:
        grouped[problem.task].append(problem)
    return grouped


@dataclass(frozen=True, slots=True)
class SamplingRound:
    """The problems of one round of sampling in a training step.

    The first round has as many problems as the step needs.

    If some of these problems cannot train the policy, a further round (a refill) replaces them by
    other problems. Example: `SamplingRound(step=7, tasks={"single": range(64)}, greedy=False,
    shards=range(4))`.

    - `tasks`: for each task, the indices of the round's problems within the step. If the first
      round has the problems 0 to 63, a refill starts at 64.
    - `greedy`: whether each problem has one additional episode at temperature 0
    - `shards`: the indices of the round's shards (batches of episodes) within the step
    - `before`: in nightly training, the number of problems of each task in earlier steps of the
      night
    - `by_kind`: with a curriculum, the numbers of solved and scored episodes for each kind of
      problem: `{"easy": (12, 16)}`
    """

    step: int
    tasks: Mapping[str, range]
    greedy: bool
    shards: range
    before: Mapping[str, int] = field(default_factory=dict)
    by_kind: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def drawn(self, schedule: ProblemSchedule) -> list[int | str]:
        """Return values that determine which problems this round draws.

        The episodes of the round are stored under a key that contains these values.
        """
        key: list[int | str] = [self.greedy]
        if schedule.rollout.curriculum:
            key.append(hashing.digest({kind: [*counts] for kind, counts in self.by_kind.items()}))
        for name, numbers in self.tasks.items():
            key += [name, numbers.start, numbers.stop]
            if schedule.night:
                # the number of earlier problems gives the position in the epoch
                key.append(self.before.get(name, 0))
        return key


@dataclass(frozen=True, slots=True)
class ProblemSchedule:
    """The order in which the steps of a run use the training problems.

    `problems` has the number of problems per step for each task: `{"single": 16}`, or with several
    tasks `{"sums": 11, "shop": 5}`.
    """

    seed: int
    rollout: Rollout
    problems: Mapping[str, int]
    night: Night | None = None

    def first_round(
        self,
        step: int,
        greedy: bool,
        before: Mapping[str, int] = {},
        by_kind: Mapping[str, tuple[int, int]] = {},
    ) -> SamplingRound:
        """Return the first round of the step `step`. The steps of a run are 1, 2, and so on.

        SamplingRound explains the other arguments.
        """
        tasks = {name: range(count) for name, count in self.problems.items()}
        shards = self._shards(sum(self.problems.values()), greedy, 0)
        return SamplingRound(step, tasks, greedy, shards, before, by_kind)

    def next_round(self, last: SamplingRound, missing: Mapping[str, int]) -> SamplingRound:
        """Return the round that follows the round `last` in the same step.

        The new round has `missing[task]` new problems of each task. Its shards (batches of
        episodes) are numbered after the shards of `last`.
        """
        shards = self._shards(sum(missing.values()), last.greedy, last.shards.stop)
        stops = {name: numbers.stop for name, numbers in last.tasks.items()}
        tasks = {name: range(stops[name], stops[name] + missing[name]) for name in stops}
        return replace(last, shards=shards, tasks=tasks)

    def missing(self, used: Mapping[str, int]) -> dict[str, int]:
        """Return how many problems of each task a step still needs.

        `used` has, for each task, the number of problems that the step already trains on.
        """
        return {name: problems - used.get(name, 0) for name, problems in self.problems.items()}

    def rows(self, sampling_round: SamplingRound, sizes: Mapping[str, int]) -> list[int]:
        """Return the row indices of a round's problems in the training split.

        With a curriculum, return the rows of all candidates. The method `chosen` draws the problems
        from the candidates. `sizes` has the number of training problems of each task. The
        tasks in `sizes` must have the same order as in the training split.

        Without nightly training, the problems of a task are used in passes. A pass shuffles all
        problems, and uses each problem at most once. The problems of a step come from one pass.
        Nightly training uses epochs instead (`epoch_order`). The problems of a step may then come
        from two epochs.

        Raises ValueError if a task has fewer problems than `block_of` returns. This number includes
        the candidates and refills of a step. Nightly training needs twice this number.
        """
        rows, start = list[int](), 0
        for name, size in sizes.items():
            rows += [start + row for row in self._rows_of(sampling_round, size, name)]
            start += size
        return rows

    def _rows_of(self, drawn: SamplingRound, size: int, task: str) -> list[int]:
        block = self.block_of(task)
        if (needed := block if self.night is None else 2 * block) > size:
            raise ValueError(
                f"A step{' of a nightly run' if self.night else ''} needs {needed} problems, but "
                f"the training split has {size}: raise data.train."
            )
        numbers = drawn.tasks[task]
        if self.night is None:
            # if a pass ends with too few problems for a step, these problems are skipped
            turn, place = divmod(drawn.step - 1, size // block)
            order, first = _pass_order(self.seed, turn, size, task), place * block
            if self.rollout.curriculum:
                return [*order[first : first + block]]
            return [*order[first + numbers.start : first + numbers.stop]]
        night = self.night.of(task)
        start = night.epoch * size + night.problem + drawn.before.get(task, 0)
        played = range(start + numbers.start, start + numbers.stop)
        orders = {
            epoch: epoch_order(self.seed, epoch, size, task)
            for epoch in {i // size for i in played}
        }
        return [orders[i // size][i % size] for i in played]

    def block_of(self, task: str) -> int:
        """Return the largest number of problems of a task that one step may need.

        This number includes the problems of refills (rounds that replace problems). With a
        curriculum, the number includes all candidates from which the step draws its problems.
        """
        curriculum = self.rollout.curriculum
        most = self.problems[task] * (1 + self.rollout.refills)
        return most * (curriculum.window if curriculum else 1)

    def chosen(self, sampling_round: SamplingRound, problems: Sequence[Problem]) -> list[Problem]:
        """Choose a round's problems from the candidates in `problems`.

        Without a curriculum, this returns all candidates. With a curriculum, it draws a weighted
        sample for each task.
        """
        if self.rollout.curriculum is None:
            return [*problems]

        def drawn(problem: Problem) -> float:
            solved, scored = sampling_round.by_kind.get(self.kind_of(problem), (0, 0))
            rate = (solved + 1) / (scored + 2)  # the pass rate is one half before the first episode
            # seeded by problem, to make the draw independent of the order of the file
            seed = hashing.seed(self.seed, "curriculum", sampling_round.step, problem.id)
            # weighted sampling by exponential keys (Efraimidis and Spirakis, 2006)
            return random.Random(seed).expovariate(rate * (1 - rate) + SELDOM)

        picked = []
        for name, some in by_task(problems, self.problems).items():
            numbers = sampling_round.tasks[name]
            picked += sorted(some, key=drawn)[numbers.start : numbers.stop]
        return picked

    def kind_of(self, problem: Problem) -> str:
        """Return the kind of a problem. Pass rates are counted for each kind.

        The kind is the text of the fact (entry of `Problem.facts`) that `rollout.curriculum.by`
        names. In a mixture of tasks, the kind begins with the task's name: `shop/easy`. If
        `rollout.curriculum.by` is empty, the kind is the problem's id. Raises ValueError if the
        problem does not have the fact.
        """
        by = self.rollout.curriculum.by if self.rollout.curriculum else ""
        if not by:
            return problem.id
        text = tag(problem, by, "rollout.curriculum.by")
        return text if problem.task == SINGLE else f"{problem.task}/{text}"

    def _shards(self, problems: int, greedy: bool, first: int) -> range:
        episodes = problems * (self.rollout.beginnings + greedy)
        return range(first, first - (-episodes // self.rollout.beginnings_of_shard))


@functools.lru_cache(maxsize=8)  # a mixture needs one entry for each of its tasks
def _pass_order(seed: int, turn: int, size: int, task: str) -> tuple[int, ...]:
    """Return the order of a task's `size` problems in the pass with the index `turn`.

    A pass uses each problem at most once. The order is cached, because every shard of every step
    needs it.
    """
    order = list(range(size))
    random.Random(hashing.seed(seed, "pass", turn, *_seed_of(task))).shuffle(order)
    return tuple(order)


def _seed_of(task: str) -> list[str]:
    return [] if task == SINGLE else [task]


def epoch_order(seed: int, epoch: int, size: int, task: str) -> list[int]:
    """Return the order of a task's `size` problems in an epoch of nightly training.

    The problems are divided into two halves, which are the same in every epoch. An epoch uses the
    first half, and then the second half. Each epoch shuffles the problems within each half. If a
    step uses problems of two epochs, all of them differ: they come from the second half in the
    earlier epoch, and from the first half in the later epoch.
    """
    everything, whose = list(range(size)), _seed_of(task)
    random.Random(hashing.seed(seed, "halves", *whose)).shuffle(everything)
    middle = (size + 1) // 2
    halves = [everything[:middle], everything[middle:]]
    for number, half in enumerate(halves):
        random.Random(hashing.seed(seed, "epoch", epoch, number, *whose)).shuffle(half)
    return [*halves[0], *halves[1]]


def night_after(night: Night, played: Mapping[str, int], sizes: Mapping[str, int]) -> Night:
    """Return the nightly run after the run `night`: its number, and its first problem of each task.

    The first problem follows the last problem that `night` used. For each task, `played` has the
    number of problems that `night` used, and `sizes` has the number of training problems. For
    example, `night_after(Night(number=1), {"single": 960}, {"single": 4096})` returns a night that
    begins at problem 960.
    """
    places = {}
    for name, size in sizes.items():
        before = night.of(name)
        epochs, problem = divmod(before.problem + played.get(name, 0), size)
        places[name] = OrderPosition(epoch=before.epoch + epochs, problem=problem)
    return Night(number=night.number + 1, tasks=places)
