"""Rewards: decorated functions that score an episode. A failed reward gives Unscored, not 0."""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import ClassVar, Unpack, overload
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter

from agentfly_core.authoring import author_part, injection, process_calls
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.event_loop import NONE_HELD, HeldCalls
from agentfly_core.authoring.injection import AuthorFunction, Lent, Signature
from agentfly_core.authoring.time_limits import Overdue, episode_played
from agentfly_core.records.trajectory import (
    USABLE,
    Examples,
    Group,
    Problem,
    Score,
    Team,
    Trajectory,
    Unscored,
    is_usable,
    team,
)
from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault, shown, words_of

LONGEST_WAIT = 30.0
_log = logging.getLogger(__name__)
Grade = Score | Unscored
_GRADES = TypeAdapter[dict[str, list[Grade]]](dict[str, list[Grade]])


@dataclass(frozen=True, eq=False, kw_only=True)
class Reward(author_part.AuthorPart):
    """A function that scores a trajectory, made by `@reward`.

    The base class AuthorPart describes further fields.

    A call that raises ServiceFailure is repeated up to `retries` times. Before the first retry,
    `backoff` seconds pass. This time doubles with each further retry, but is at most 30 seconds. At
    most `concurrency` calls run at once; None means no limit.

    `examples` is a function that returns right and wrong answers of a problem, as Examples.
    `agentfly prepare` scores these answers to check the reward. For a problem without a solution,
    `examples` raises ValueError.
    """

    kind: ClassVar[str] = "reward"

    backoff: float = 1.0
    concurrency: int | None = None
    examples: Callable[[Problem], Examples] | None = None

    @functools.cached_property
    def needs(self) -> Mapping[str, type[Environment]]:
        """The environments that this reward reads at the end of an episode, by parameter name."""
        return self.signature.environments

    @functools.cached_property
    def compares(self) -> bool:
        """Whether the reward gets a Group and scores all episodes of a problem together."""
        return Group in self.signature.lent.values()

    async def score(self, trajectory: Trajectory, lent: Mapping[type[Lent], Lent]) -> Grade:
        """Score a trajectory. If the function fails, return Unscored with the error.

        `lent` contains the objects for the function's parameters, such as environments, by class.
        Raises ServiceFailure if every attempt to call the function raised ServiceFailure.
        """
        (result,) = await self._scores([trajectory], {Team: Team((trajectory,)), **lent})
        return result

    async def of_record(
        self,
        trajectory: Trajectory,
        held: HeldCalls = NONE_HELD,
        episode: Sequence[Trajectory] = (),
    ) -> Grade:
        """Score a stored trajectory.

        A score that was computed during the episode is returned unchanged. Otherwise, the function
        of the reward is called. The result is Unscored if the call fails, or if the reward needs an
        environment. `held` contains the calls that blocked the event loop before. Such a call is
        skipped, and the result is Unscored. `episode` contains the trajectories of all speakers,
        for a function with a parameter of type Team.
        """
        if (observed := trajectory.observed.get(self.name)) is not None:
            return observed
        if self.needs:
            return Unscored(
                f"{self.name}: this reward needs an environment, which exists only during the "
                "episode; play new episodes with this reward"
            )
        (result,) = await self.of_records([trajectory], held, episode)
        return result

    async def of_records(
        self,
        trajectories: Sequence[Trajectory],
        held: HeldCalls = NONE_HELD,
        episode: Sequence[Trajectory] = (),
    ) -> list[Grade]:
        """Score stored trajectories, and return one score for each trajectory.

        If the reward compares episodes, `trajectories` has one trajectory for each episode of a
        problem. Otherwise, `trajectories` has only one element. `held` has the calls that blocked
        the event loop before. If `held` has a call of this reward for the first
        trajectory's episode, no call is made, and all scores are Unscored. `episode` contains the
        trajectories of all speakers, for a function with a parameter of type Team.
        """
        episode_played.set(trajectories[0].episode)
        if reason := held.get((self.what, trajectories[0].episode)):
            return [Unscored(f"{self.name}: {reason}")] * len(trajectories)
        try:
            return await self._scores(trajectories, {Team: team(episode or trajectories[:1])})
        except ServiceFailure as failure:
            return [Unscored(f"{self.name}: {fault(failure)}")] * len(trajectories)

    async def answer_apart(
        self, question: Mapping[str, JSON], caller: process_calls.Caller
    ) -> Mapping[str, JSON]:
        """Score the trajectories in the JSON object `question`, in the reward's child process.

        `caller` calls the reward's function. The result is `{"grades": [<score>, ...]}`.
        """
        work = process_calls.adapter(_Question).validate_python(question)
        grades = await self._grades(work.group, {Team: work.team}, caller)
        return {"grades": [asdict(one) for one in grades]}

    async def _scores(
        self, trajectories: Sequence[Trajectory], lent: Mapping[type[Lent], Lent]
    ) -> list[Grade]:
        group = Group(tuple(trajectories))
        for attempt in range(self.retries):
            try:
                return await self._score_once(group, lent)
            except ServiceFailure as failure:
                _log.info(
                    "The reward %s is called again after an error: %s", self.name, fault(failure)
                )
            await asyncio.sleep(min(self.backoff * 2.0**attempt, LONGEST_WAIT))
        return await self._score_once(group, lent)

    async def _score_once(self, group: Group, lent: Mapping[type[Lent], Lent]) -> list[Grade]:
        async with self._seats or nullcontext():
            if self.process:
                try:
                    # only the objects that the reward reads are sent, because a team may be large
                    # as JSON
                    needed = {k: v for k, v in lent.items() if k in self.signature.lent.values()}
                    team = needed.get(Team, Team(()))
                    assert isinstance(team, Team)
                    question = _Question(group, team)
                    answer = await self.ask_process(asdict(question))
                    results = _GRADES.validate_python(answer)["grades"]
                except (Overdue, process_calls.Died) as error:
                    results = _all_unscored(words_of(error), group)
            else:
                results = await self._grades(group, lent, self.call)
        return [
            Unscored(f"{self.name}: {one.reason}") if isinstance(one, Unscored) else one
            for one in results
        ]

    async def _grades(
        self, group: Group, lent: Mapping[type[Lent], Lent], caller: process_calls.Caller
    ) -> list[Grade]:
        first = group.trajectories[0]
        available = {**lent, Trajectory: first, Group: group, Problem: first.problem}
        arguments = {name: available[kind] for name, kind in self.signature.lent.items()}
        used = [thing for thing in arguments.values() if isinstance(thing, Environment)]
        try:
            bound = functools.partial(self.function, **arguments)
            result = await caller(bound, used)
            if not self.compares:
                return [self._checked(result, first)]
            count = len(group.trajectories)
            if not isinstance(result, Iterable):
                got = f"got {shown(result)} ({type(result).__name__})"
                return _all_unscored(f"{got}, expected a list of {count} scores", group)
            results = list(result)
            if len(results) != count:
                return _all_unscored(f"got {len(results)} scores for {count} episodes", group)
            return [self._checked(*pair) for pair in zip(results, group.trajectories, strict=True)]
        except ServiceFailure:
            raise
        except (Exception, SystemExit) as error:  # it must not end other episodes
            place = tracebacks.own_line(error)
            return _all_unscored(fault(error) + (f", at {place}" if place else ""), group)

    @property
    def _seats(self) -> asyncio.Semaphore | None:
        """The semaphore that limits calls on the running event loop, or None for no limit."""
        if self.concurrency is None:
            return None
        loop = asyncio.get_running_loop()
        # An asyncio semaphore works on one loop only, and a blocked loop is replaced by a new one.
        return self._seats_by_loop.setdefault(loop, asyncio.Semaphore(self.concurrency))

    @functools.cached_property
    def _seats_by_loop(self) -> WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]:
        return WeakKeyDictionary()

    def _checked(self, result: Score | float, trajectory: Trajectory) -> Grade:
        score = result if isinstance(result, Score) else Score(result)
        own = score.by_speaker.values()
        for number in (score.value, *score.parts.values(), *score.per_turn, *own):
            if not is_usable(number):
                return Unscored(f"got {shown(number)} ({type(number).__name__}), expected {USABLE}")
        if len(score.per_turn) not in (0, len(trajectory.turns)):
            return Unscored(
                f"per_turn has the length {len(score.per_turn)}, expected {len(trajectory.turns)} "
                "(one value per turn)"
            )
        parts = {name: float(part) for name, part in score.parts.items()}
        by_speaker = {speaker: float(value) for speaker, value in score.by_speaker.items()}
        return Score(float(score.value), parts, tuple(map(float, score.per_turn)), by_speaker)

    def check(self, signature: Signature) -> None:
        """Raise ValueError if a parameter or the return annotation does not suit a reward."""
        injection.refuse_no_score(self.what, self.function, Group in signature.lent.values())
        if signature.arguments:
            raise ValueError(
                f"{self.what} gets no value for {', '.join(signature.arguments)}. Annotate each "
                "parameter with Trajectory, Team, Problem, Group or an environment. Read other "
                "values from trajectory.problem.facts."
            )
        single = [kind.__name__ for kind in signature.lent.values() if kind not in (Group, Problem)]
        if Group in signature.lent.values() and single:
            raise ValueError(
                f"{self.what} has parameters of the types Group and {', '.join(single)}. A reward "
                "with a Group compares episodes, so it can have only a Problem as another "
                "parameter. Split the reward into two."
            )


class RewardOptions(author_part.PartOptions, total=False):
    """Options of `@reward`. Each option is a field of Reward or AuthorPart, with the same default.

    The default of `name` is the name of the function, or the class name in lower case.
    """

    backoff: float
    concurrency: int | None
    examples: Callable[[Problem], Examples]


@overload
def reward(function: AuthorFunction, /) -> Reward: ...
@overload
def reward(**options: Unpack[RewardOptions]) -> Callable[[AuthorFunction], Reward]: ...
def reward(
    function: AuthorFunction | None = None, /, **options: Unpack[RewardOptions]
) -> Reward | Callable[[AuthorFunction], Reward]:
    """Make a reward from a function or a class. The function returns a number or a Score.

    See Reward for the options. The function of a class is its method `__call__`. Each parameter is
    annotated with Trajectory, Team, Problem, Group or an environment class, and gets an object of
    this type. A Team contains the trajectories of all speakers of the episode. A reward with an
    environment runs at the end of the episode. All other rewards run later, on the stored episodes.
    A Group contains all episodes of a problem, without FAILED episodes. A reward with a Group
    returns a list with one score for each of these episodes.
    """

    def make(wrapped: AuthorFunction) -> Reward:
        given: RewardOptions = {"name": injection.name(wrapped), **options}
        return Reward(made_of=wrapped, **given)

    return make if function is None else make(function)


@dataclass(frozen=True, slots=True)
class _Question:
    """A request to a reward in another process.

    - `group`: the trajectories to score: all episodes of a problem, or only one trajectory
    - `team`: the trajectories of all speakers of the episode, for a function with a parameter
      of type Team
    """

    group: Group
    team: Team


def _all_unscored(reason: str, group: Group) -> list[Grade]:
    return [Unscored(reason)] * len(group.trajectories)
