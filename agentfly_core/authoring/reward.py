"""Rewards: decorated functions that score an episode. A missing score is never zero."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, overload

from pydantic import TypeAdapter

from agentfly_core.authoring import calling, injection, process_calls
from agentfly_core.authoring.author_call import Overdue, Seats
from agentfly_core.authoring.author_loops import LoopLost
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.injection import AuthorFunction, Lent, Signature
from agentfly_core.formats.json_value import JSON
from agentfly_core.formats.text import fault, shown, words_of
from agentfly_core.records.speakers import answering, apart_name, by_episode, episode_numbers
from agentfly_core.records.trajectory import Ending, Problem, Score, Scored, Trajectory, Unscored

AT_ONCE = 32
LONGEST_WAIT = 30.0
LARGEST = 1e15
"""What a reward may be at most, either way: gradients grow with it, and their squares must be
numbers in float32.
"""
USABLE = f"a finite number, from {-LARGEST:g} to {LARGEST:g}"
_log = logging.getLogger(__name__)
_FOUND = TypeAdapter[Score | Unscored](Score | Unscored)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reward(calling.Part):
    """A function that scores a trajectory, made by `@reward`, still callable.

    See `calling.Part` for what it shares with tools. Each of the `retries` comes after a wait of
    `backoff` seconds that doubles up to LONGEST_WAIT; at most `concurrency` calls of it are made at
    a time, None: as many as there are.
    """

    kind: ClassVar[str] = "reward"

    backoff: float
    concurrency: int | None

    @functools.cached_property
    def needs(self) -> Mapping[str, type[Environment]]:
        """The environments that it must see before their lease ends, by parameter."""
        return self.signature.environments

    async def score(
        self, trajectory: Trajectory, lent: Mapping[type[Lent], Lent]
    ) -> Score | Unscored:
        """What it found, or why nothing; raises ServiceFailure, nothing else it could cause."""
        for attempt in range(self.retries):
            try:
                return await self._score_once(trajectory, lent)
            except LoopLost:  # what it was lent may be lost, too
                raise
            except ServiceFailure as failure:
                _log.info("%s is asked again: %s", self.name, fault(failure))
            await asyncio.sleep(min(self.backoff * 2.0**attempt, LONGEST_WAIT))
        return await self._score_once(trajectory, lent)

    async def of_record(self, trajectory: Trajectory) -> Score | Unscored:
        """What it found of a stored trajectory, or why nothing."""
        if (observed := trajectory.observed.get(self.name)) is not None:
            return observed
        if self.needs:
            return Unscored(
                f"{self.name}: it needs an environment and was not observed during the episode"
            )
        try:
            try:
                return await self.score(trajectory, {})
            except LoopLost:  # other code held the loop; scoring a record can be repeated
                return await self.score(trajectory, {})
        except ServiceFailure as failure:
            return Unscored(f"{self.name}: {fault(failure)}")

    async def answer_apart(
        self, question: Mapping[str, JSON], caller: process_calls.Caller
    ) -> Mapping[str, JSON]:
        """What `score` asks another process, in that process."""
        trajectory = process_calls.adapter(Trajectory).validate_python(question)
        return asdict(await self._found(trajectory, {}, caller))

    async def _score_once(
        self, trajectory: Trajectory, lent: Mapping[type[Lent], Lent]
    ) -> Score | Unscored:
        async with self._seats or nullcontext():
            if self.process:
                try:
                    found = _FOUND.validate_python(await self.asked(asdict(trajectory)))
                except (Overdue, process_calls.Died) as error:
                    found = Unscored(words_of(error))
            else:
                found = await self._found(trajectory, lent, self.call)
        return Unscored(f"{self.name}: {found.reason}") if isinstance(found, Unscored) else found

    async def _found(
        self, trajectory: Trajectory, lent: Mapping[type[Lent], Lent], caller: process_calls.Caller
    ) -> Score | Unscored:
        known = {**lent, Trajectory: trajectory, Problem: trajectory.problem}
        arguments = {name: known[kind] for name, kind in self.signature.lent.items()}
        used = [thing for thing in arguments.values() if isinstance(thing, Environment)]
        try:
            bound = functools.partial(self.function, **arguments)
            return self._checked(await caller(bound, used), trajectory)
        except ServiceFailure:
            raise
        except (Exception, SystemExit) as error:  # one reward's mistake ends no other episode
            return Unscored(fault(error))

    @functools.cached_property
    def _seats(self) -> Seats | None:
        return None if self.concurrency is None else Seats(self.concurrency)

    def _checked(self, result: Score | float, trajectory: Trajectory) -> Score | Unscored:
        score = result if isinstance(result, Score) else Score(result)
        own = score.by_speaker.values()
        for found in (score.value, *score.parts.values(), *score.per_turn, *own):
            if not is_usable(found):
                return Unscored(f"got {shown(found)} ({type(found).__name__}), expected {USABLE}")
        if len(score.per_turn) not in (0, len(trajectory.turns)):
            return Unscored(f"{len(score.per_turn)} turn rewards for {len(trajectory.turns)} turns")
        parts = {name: float(part) for name, part in score.parts.items()}
        by_speaker = {speaker: float(value) for speaker, value in score.by_speaker.items()}
        return Score(float(score.value), parts, tuple(map(float, score.per_turn)), by_speaker)

    def check(self, found: Signature) -> None:
        """Raise ValueError for a reward that asks for anything but what is lent to it."""
        if found.asked:
            raise ValueError(
                f"{self.what} asks for {', '.join(found.asked)}; a reward is lent "
                "its Trajectory, Problem and environments only, by annotation: read other values "
                "from trajectory.problem.facts."
            )


@overload
def reward(function: AuthorFunction, /) -> Reward: ...
@overload
def reward(
    *,
    name: str | None = None,
    timeout: float = 30.0,
    retries: int = 0,
    backoff: float = 1.0,
    concurrency: int | None = None,
    ready: calling.Ready = calling.nothing_needed,
    process: bool = False,
) -> Callable[[AuthorFunction], Reward]: ...
def reward(
    function: AuthorFunction | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float = 30.0,
    retries: int = 0,
    backoff: float = 1.0,
    concurrency: int | None = None,
    ready: calling.Ready = calling.nothing_needed,
    process: bool = False,
) -> Reward | Callable[[AuthorFunction], Reward]:
    """Make a reward of a function, synchronous or not, that returns a number or a Score, or of a
    class of such objects; see Reward.

    What it takes is lent to it by annotation: Trajectory, Problem, environments. With an
    environment it is scored while the episode still has it, otherwise from the record, as often as
    wanted.
    """

    def make(wrapped: AuthorFunction) -> Reward:
        return Reward(
            made_of=wrapped,
            name=name or injection.name(wrapped),
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            concurrency=concurrency,
            ready=ready,
            process=process,
        )

    return make if function is None else make(function)


async def score(
    trajectories: Sequence[Trajectory], rewards: Mapping[Reward, float], main: str = ""
) -> list[Scored]:
    """Trajectories' scores, in their order; `rewards` maps each reward to its weight in the sum.

    An episode of several speakers is scored once, by the trajectory that answered, of which `main`
    is the agent's own (see `speakers.answering`); the score holds for all of them. What was
    observed during the episode is taken from the record. `Scored.rewards` holds each reward under
    its name, its parts under `name/part` and what it gave a speaker apart under
    `name/speaker/role`, unweighted. An episode of which one reward is missing, or which FAILED, is
    Unscored, as is one whose reward names a speaker that none of the episodes has. Raises
    ValueError for two rewards of one name.
    """
    names = [reward.name for reward in rewards]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Two rewards have the same name: {sorted(names)}; give one of them another, "
            "`@reward(name=...)`."
        )
    seats = asyncio.Semaphore(max(AT_ONCE, *(reward.concurrency or 0 for reward in rewards), 0))
    speakers = list(dict.fromkeys(trajectory.speaker for trajectory in trajectories))
    scored = (
        _scored(answering(episode, main), episode, rewards, speakers, seats)
        for episode in by_episode(trajectories)
    )
    found = await asyncio.gather(*scored)
    numbers = episode_numbers(trajectories)
    scores = [iter(of_episode) for of_episode in found]
    return [next(scores[number]) for number in numbers]


async def _scored(
    answered: Trajectory,
    episode: Sequence[Trajectory],
    rewards: Mapping[Reward, float],
    speakers: Sequence[str],
    seats: asyncio.Semaphore,
) -> list[Scored]:
    """The scores of an episode's trajectories, in their order."""
    if answered.ending is Ending.FAILED:
        reason = Unscored(f"episode failed: {answered.error}")
        return [Scored(trajectory.id, {}, (), reason) for trajectory in episode]
    found: dict[str, tuple[float, Score | Unscored]] = {}
    async with seats:
        for reward, weight in rewards.items():
            score = await reward.of_record(answered)
            if isinstance(score, Score) and (unknown := [*score.by_speaker.keys() - {*speakers}]):
                score = Unscored(
                    f"{reward.name}: by_speaker names {unknown[0]!r}, the speakers of these "
                    f"episodes are {', '.join(speakers)}"
                )
            found[reward.name] = weight, score
    return [_held(found, trajectory, trajectory is answered) for trajectory in episode]


def _held(
    found: Mapping[str, tuple[float, Score | Unscored]], trajectory: Trajectory, answered: bool
) -> Scored:
    """An episode's scores as they hold for one of its trajectories; those of turns are of the one
    that answered.
    """
    own = dict(found)
    for name, (weight, score) in found.items():
        if isinstance(score, Score):
            value = score.by_speaker.get(trajectory.speaker, score.value)
            per_turn = score.per_turn if answered else ()
            own[name] = weight, replace(score, value=value, per_turn=per_turn)
    return replace(combined(trajectory.id, own), rewards=_by_name(found))


def combined(trajectory_id: str, found: Mapping[str, tuple[float, Score | Unscored]]) -> Scored:
    """The weighted sum of rewards by name: `combined("9f2c", {"exact": (1.0, Score(1.0))})`.

    Unscored where one is missing, and where the sum is of no usable size.
    """
    scores = {
        name: (weight, score) for name, (weight, score) in found.items() if isinstance(score, Score)
    }
    rewards = _by_name(found)
    if missing := [score.reason for _, score in found.values() if isinstance(score, Unscored)]:
        return Scored(trajectory_id, rewards, (), Unscored("; ".join(missing)))
    turns = [
        [weight * value for value in score.per_turn]
        for weight, score in scores.values()
        if score.per_turn
    ]
    by_turn = tuple(_sum(column) for column in zip(*turns, strict=True))
    total = _sum([weight * score.value for weight, score in scores.values()])
    if all(map(is_usable, (total, *by_turn))):
        return Scored(trajectory_id, rewards, by_turn, total)
    terms = " + ".join(
        f"{weight:g} x {score.value:g} ({name})" for name, (weight, score) in scores.items()
    )
    reason = f"the weighted sum of the rewards or of those of a turn, {terms}, is not {USABLE}"
    return Scored(trajectory_id, rewards, (), Unscored(reason))


def _by_name(found: Mapping[str, tuple[float, Score | Unscored]]) -> dict[str, float]:
    """Each reward, its parts and what it gave speakers apart, by the names in `Scored.rewards`."""
    rewards: dict[str, float] = {}
    for name, (_, score) in found.items():
        if isinstance(score, Score):
            parts = {f"{name}/{part}": value for part, value in score.parts.items()}
            apart = {apart_name(name, who): value for who, value in score.by_speaker.items()}
            rewards |= {name: score.value, **parts, **apart}
    return rewards


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # an infinity, or two that differ
        return math.nan


def is_usable(value: float) -> bool:
    """Whether an author's number may be a reward: it is finite, and LARGEST at most."""
    try:
        return hasattr(value, "__float__") and abs(float(value)) <= LARGEST
    except OverflowError:  # an int of 400 digits
        return False
