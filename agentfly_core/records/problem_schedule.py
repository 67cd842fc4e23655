"""The problems that a step plays, and their shards, drawn by the seed; more on demand."""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentfly_core.config.experiment import Night, OrderPosition, Rollout, Settings
from agentfly_core.records.trajectory import Problem, in_task, tag, task_of
from agentfly_core.system.formats import hashing

SELDOM = 0.01
"""The least weight of a kind that is always solved or never: none is forgotten."""


def by_task(problems: Iterable[Problem], tasks: Collection[str]) -> dict[str, list[Problem]]:
    """The problems of each of these tasks, in their order; all as `{"": [...]}` without tasks."""
    grouped: dict[str, list[Problem]] = {name: [] for name in tasks or [""]}
    for problem in problems:
        grouped[task_of(problem.id) if tasks else ""].append(problem)
    return grouped


@dataclass(frozen=True, slots=True)
class SamplingRound:
    """Problems of one step that are played together.

    `SamplingRound(step=7, first=0, count=64, greedy=False, shards=range(4))`

    `first` counts problems within the step, those of refills last. With `greedy` each problem has
    one more episode at temperature 0. `before` counts problems of earlier steps by task, `{"":
    384}` without tasks, for nights. In a mixture `tasks` are `first` and `count` of each task:
    `{"sums": (0, 43), "shop": (0, 21)}`. `by_kind` has solved and scored episodes, for a
    curriculum.
    """

    step: int
    first: int
    count: int
    greedy: bool
    shards: range
    before: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    by_kind: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def drawn(self, schedule: ProblemSchedule) -> list[int | str]:
        """Which of the step's problems they are, and how often each is played, as keys have it."""
        key: list[int | str] = [self.first, self.count, self.greedy]
        if schedule.night:
            key += [self.before.get(name, 0) for name in schedule.problems]
        if schedule.rollout.curriculum:
            key.append(hashing.digest({kind: [*counts] for kind, counts in self.by_kind.items()}))
        for name, counts in self.tasks.items():
            key += [name, *counts]
        return key

    def of(self, task: str) -> SamplingRound:
        """The part of it that is of one task, which without tasks is all."""
        first, count = self.tasks.get(task, (self.first, self.count))
        return replace(self, first=first, count=count)


@dataclass(frozen=True, slots=True)
class ProblemSchedule:
    """The order in which the steps of a run play its training problems:
    `ProblemSchedule(seed=0, rollout=Rollout(), problems={"sums": 11, "shop": 5}, night=None)`.

    `problems` counts the problems of a step by task, `{"": 16}` without tasks.
    """

    seed: int
    rollout: Rollout
    problems: Mapping[str, int]
    night: Night | None = None

    @classmethod
    def of(cls, settings: Settings) -> ProblemSchedule:
        """The schedule of an experiment, which has one task without a name or several."""
        problems = settings.quotas(settings.rollout.problems)
        return cls(settings.seed, settings.rollout, problems, settings.night)

    def first_round(
        self,
        step: int,
        greedy: bool,
        before: Mapping[str, int] = {},
        by_kind: Mapping[str, tuple[int, int]] = {},
    ) -> SamplingRound:
        """The first round of step 1, 2, ..., which is always played."""
        count = sum(self.problems.values())
        tasks = {name: (0, problems) for name, problems in self.problems.items() if name}
        shards = self._shards(count, greedy, 0)
        return SamplingRound(step, 0, count, greedy, shards, before, tasks, by_kind)

    def next_round(self, before: SamplingRound, missing: Mapping[str, int]) -> SamplingRound:
        """A round of further problems by task, `{"": 12}` without tasks, after `before`."""
        count = sum(missing.values())
        shards = self._shards(count, before.greedy, before.shards.stop)
        tasks = {name: (sum(before.tasks[name]), missing[name]) for name in before.tasks}
        first = before.first + before.count
        return replace(before, first=first, count=count, shards=shards, tasks=tasks)

    def missing(self, used: Mapping[str, int]) -> dict[str, int]:
        """How many problems of each task a step still lacks; `used` could be learned from."""
        return {name: problems - used.get(name, 0) for name, problems in self.problems.items()}

    def rows_of_tasks(self, sampling_round: SamplingRound, sizes: Mapping[str, int]) -> list[int]:
        """The training rows of a round, task by task in the order of `sizes`; see `rows_of`."""
        rows, start = list[int](), 0
        for name, size in sizes.items():
            rows += [start + row for row in self.rows_of(sampling_round, size, name)]
            start += size
        return rows

    def rows_of(self, sampling_round: SamplingRound, size: int, task: str = "") -> list[int]:
        """The rows of a task's round, or all candidates of a curriculum.

        Each pass over the data is a new permutation, whose end cuts no step. A night's passes are
        epochs (`epoch_order`), whose ends may. Raises ValueError for fewer problems than a step
        needs, in a night twice as many.
        """
        block, drawn = self.block_of(task), sampling_round.of(task)
        if (needed := block if self.night is None else 2 * block) > size:
            raise ValueError(
                f"A step{' of a night' if self.night else ''} needs {needed} problems, the "
                f"training split has {size}: raise data.train."
            )
        if self.night is None:
            return self._rows_of_pass(drawn, size, task)
        night = self.night.of(task)
        start = night.epoch * size + night.problem + drawn.before.get(task, 0) + drawn.first
        played = range(start, start + drawn.count)
        orders = {
            epoch: epoch_order(self.seed, epoch, size, task)
            for epoch in {i // size for i in played}
        }
        return [orders[i // size][i % size] for i in played]

    def _rows_of_pass(self, drawn: SamplingRound, size: int, task: str) -> list[int]:
        block = self.block_of(task)
        turn, place = divmod(drawn.step - 1, size // block)
        order = _pass_order(self.seed, turn, size, task)
        if self.rollout.curriculum:
            return [*order[place * block : (place + 1) * block]]
        first = place * block + drawn.first
        return [*order[first : first + drawn.count]]

    def block_of(self, task: str) -> int:
        """Problems of a task's pass that a step uses, candidates of a curriculum included."""
        curriculum = self.rollout.curriculum
        most = self.problems[task] * (1 + self.rollout.refills)
        return most * (curriculum.window if curriculum else 1)

    def chosen(self, sampling_round: SamplingRound, problems: Sequence[Problem]) -> list[Problem]:
        """The problems of a round: all, or a weighted draw of each task with a curriculum."""
        if self.rollout.curriculum is None:
            return [*problems]

        def drawn(problem: Problem) -> float:
            solved, scored = sampling_round.by_kind.get(self.kind_of(problem), (0, 0))
            rate = (solved + 1) / (scored + 2)  # one half of what nobody has tried
            seed = hashing.seed(self.seed, "curriculum", sampling_round.step, problem.id)
            # the first to arrive in a race of exponential clocks (Efraimidis and Spirakis, 2006)
            return random.Random(seed).expovariate(rate * (1 - rate) + SELDOM)

        picked = []
        for name, some in by_task(problems, [name for name in self.problems if name]).items():
            part = sampling_round.of(name)
            picked += sorted(some, key=drawn)[part.first : part.first + part.count]
        return picked

    def kind_of(self, problem: Problem) -> str:
        """The group of a problem's pass rate: its id, or task and fact; raises ValueError."""
        by = self.rollout.curriculum.by if self.rollout.curriculum else ""
        if not by:
            return problem.id
        text = tag(problem, by, "rollout.curriculum.by")
        return text if "" in self.problems else in_task(task_of(problem.id), text)

    def _shards(self, problems: int, greedy: bool, first: int) -> range:
        episodes = problems * (self.rollout.group_size + greedy)
        return range(first, first - (-episodes // self.rollout.shard))


@functools.lru_cache(maxsize=8)  # one a task of a mixture
def _pass_order(seed: int, turn: int, size: int, task: str) -> tuple[int, ...]:
    """A pass over `size` problems: each shard of each of its steps asks for it again."""
    order = list(range(size))
    random.Random(hashing.seed(seed, "pass", turn, *filter(None, [task]))).shuffle(order)
    return tuple(order)


def epoch_order(seed: int, epoch: int, size: int, task: str = "") -> list[int]:
    """A permutation of `size` problems for an epoch of nights and a task.

    Two fixed halves are shuffled separately, so that a problem returns after size / 2 others at the
    earliest.
    """
    everything, whose = list(range(size)), [*filter(None, [task])]
    random.Random(hashing.seed(seed, "halves", *whose)).shuffle(everything)
    middle = (size + 1) // 2
    halves = [everything[:middle], everything[middle:]]
    for number, half in enumerate(halves):
        random.Random(hashing.seed(seed, "epoch", epoch, number, *whose)).shuffle(half)
    return [*halves[0], *halves[1]]


def night_after(night: Night, played: Mapping[str, int], sizes: Mapping[str, int]) -> Night:
    """The next night: `night_after(Night(number=1), {"": 960}, {"": 4096})` is `{number: 2, epoch:
    0, problem: 960}`.
    """
    places = {}
    for name, size in sizes.items():
        before = night.of(name)
        epochs, problem = divmod(before.problem + played.get(name, 0), size)
        places[name] = OrderPosition(epoch=before.epoch + epochs, problem=problem)
    if "" in places:
        return Night(number=night.number + 1, **places[""].model_dump())
    return Night(number=night.number + 1, tasks=places)
