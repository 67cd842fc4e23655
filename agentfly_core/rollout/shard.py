"""Play one episode, or a shard (a batch of episodes that are played concurrently)."""

from __future__ import annotations

import logging
import math
from asyncio import TaskGroup
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

from agentfly_core.authoring import injection
from agentfly_core.authoring.environment import Environment, ServiceFailure, in_order
from agentfly_core.authoring.time_limits import episode_played, on_loop
from agentfly_core.inference.sampler import NoReply, Sampler
from agentfly_core.records.timing import Timing
from agentfly_core.records.trajectory import Ending, Team, Trajectory, team
from agentfly_core.rollout.episode import Episode, RolloutSpec
from agentfly_core.rollout.frozen import Cast, cast
from agentfly_core.rollout.history.forks import AsksDifferently
from agentfly_core.rollout.history.leaves import PlayedEpisode, following, with_branches
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.rules import EpisodeOver, EpisodeSpec, PromptTooLong, StartAgain
from agentfly_core.system.formats import hashing, tracebacks
from agentfly_core.system.formats.text import fault, warn_once
from agentfly_core.system.service import ServiceLost

LEASE_SECONDS = 120.0
NO_ANSWER = "without an answer"
_log = logging.getLogger(__name__)


class EpisodeBroken(ValueError):
    """An error in a chat template or a sampler. It ends the pipeline stage, not only the episode.

    The message contains the traceback, and names the line of the user's code.
    """

    @classmethod
    def by(
        cls, error: BaseException, episode_spec: EpisodeSpec, spec: RolloutSpec
    ) -> EpisodeBroken:
        """Make the exception for an `error` in this episode. The message contains the error's
        traceback.
        """
        return cls(
            f"An episode of the problem {episode_spec.problem.id!r} (chain {episode_spec.chain}, "
            f"agent {injection.name(spec.agent)!r}) failed. The error is in code, not in a "
            f"reply, so the stage stops:\n{tracebacks.trace(error)}\n{fault(error)}\nLook at "
            f"{_place(error, spec)}."
        )


async def play(
    episode_spec: EpisodeSpec,
    spec: RolloutSpec,
    cast: Cast,
    resources: ResourceManager,
    again: bool = False,
) -> PlayedEpisode:
    """Play an episode. The trajectory of the speaker that gave the final answer comes first.

    If no speaker gave an answer, the trajectory of the main speaker (the speaker with the agent's
    name) comes first.

    An episode ends FAILED if a service fails, if the episode exceeds its deadline, or if the agent
    raises an error before the first reply. If the agent raises an error after a reply, the
    replies are kept and scored. If the agent raises StartAgain, the episode is played once more,
    with `again` set. Errors of the sampler and the template are raised.
    """
    episode_played.set(episode_spec.id)
    episode = Episode(episode_spec, spec, cast, cast.speakers, injection.name(spec.agent))
    if episode_spec.failed:
        failed = _record(episode_spec, spec, episode, Ending.FAILED, episode_spec.failed)
        return PlayedEpisode(episode_spec, failed, Timing(failed[0].id, ()))
    lease = resources.leases(spec.kinds, episode.problem, LEASE_SECONDS, spec.deadline)
    try:
        async with AsyncExitStack() as stack:
            with episode.timed("waiting"):
                lent = await stack.enter_async_context(lease)
            for kind, environment in lent.items():
                episode.lend(kind, environment)
            ending = await _ending(spec, episode)
            if episode.state.repetition.repeats:
                raise AsksDifferently("ends before the point at which its parent forked")
            seen, *others = _record(episode_spec, spec, episode, *ending)
            # demonstrations are cached under a key without the reward, so their scores must not be
            # stored
            rewards = () if episode_spec.role == "demonstration" else spec.rewards
            with episode.timed("rewards"):
                available = {**episode.lent, Team: team([seen, *others])}
                observed = {one.name: await one.score(seen, available) for one in rewards}
        trajectories = [replace(seen, observed=observed), *others]
    except ServiceFailure as failure:
        if isinstance(failure, StartAgain) and not again:
            _log.info(
                "The episode %s is played again, because of this error: %s",
                episode_spec.id,
                failure,
            )
            return await play(episode_spec, spec, cast, resources, again=True)
        if where := tracebacks.own_line(failure.__cause__ or failure):
            first = f"{fault(failure)} (first in the problem {episode.problem.id!r})"
            warn_once(_log, f"An episode failed at {where}", first)
        trajectories = _record(episode_spec, spec, episode, Ending.FAILED, fault(failure))
    timing = Timing(trajectories[0].id, tuple(episode.state.spans), episode.counts)
    return PlayedEpisode(episode_spec, trajectories, timing, episode.state.children)


async def collect(
    episode_specs: Sequence[EpisodeSpec],
    spec: RolloutSpec,
    sampler: Sampler,
    watch: Callable[[Trajectory], None],
    resources: ResourceManager,
) -> tuple[list[Trajectory], list[Timing], dict[str, float]]:
    """Play a shard (a batch) of episodes concurrently.

    After each episode, `watch` is called with the trajectory of the speaker that gave the final
    answer, or of the main speaker if no speaker gave an answer. Forks (copies of an episode that
    continue on their own) are played after all other episodes have ended. The same applies to spare
    episodes that no fork replaces (see `EpisodeSpec.spares`). Forks of these forks are played in a
    further round, and so on. The composition of sampler batches is therefore independent of the
    speed at which single episodes end.

    At most `spec.at_once` episodes that need environments run at once. If one of the environment
    classes has a lower limit, this lower limit applies. So a running episode never waits for an
    environment. At the same time, at most `spec.at_once` episodes without environments run.

    Returns

    - the trajectories, sorted by (problem, chain, agent). `chain` is the index of an episode among
      the episodes of its problem.
    - the timings of the episodes, sorted by (problem, chain)
    - the metrics of `resources`, and the counts of events in the episodes

    Raises

    - ServiceLost if the sampler dies. The shard can then be played again.
    - PromptTooLong if a first prompt leaves no room for a reply
    - NoReply if a sampler refuses a request
    - EpisodeBroken for any other error of a template or a sampler
    - any error of `watch`
    """
    shard = _ShardPlay(spec, sampler, watch, resources)
    failure: BaseException | None = None
    try:
        measured = await shard.all(episode_specs)
    except BaseExceptionGroup as failures:
        # after ServiceLost the caller plays the shard again, so it must not hide any other error
        failure = failures.split(ServiceLost)[1] or failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if failure is not None:
        raise failure
    played = sorted(shard.played, key=attrgetter("spec.problem.id", "spec.chain"))
    trajectories = [one for each in played for one in sorted(each.record, key=attrgetter("agent"))]
    timings = [each.timing for each in played]
    counts = sum((Counter(timing.counts) for timing in timings), Counter[str]())
    return with_branches(played, trajectories), timings, {**measured, **counts}


@dataclass(frozen=True)
class _ShardPlay:
    """A shard (a batch of episodes) that is being played.

    `played` contains the episodes that have ended.
    """

    spec: RolloutSpec
    sampler: Sampler
    watch: Callable[[Trajectory], None]
    resources: ResourceManager
    played: list[PlayedEpisode] = field(default_factory=list)

    async def all(self, episode_specs: Sequence[EpisodeSpec]) -> dict[str, float]:
        """Play all episodes, and then their forks (copies that continue on their own).

        Spare episodes that no fork replaces are played with the forks; see `EpisodeSpec.spares`.
        Return the metrics of the environments.
        """
        rows, numbers = _rows(episode_specs, self.spec), Counter[tuple[str, int]]()
        await self._warm(rows)
        specs = list(episode_specs)
        while specs:
            done = len(self.played)
            # an episode that may have killed a worker is played alone, after the others
            together = [one for one in specs if not one.alone]
            for some in (together, *([one] for one in specs if one.alone)):
                await self._group(some)
            assert len(self.played) == done + len(specs), "an episode was cancelled from within"
            specs = following(self.played[done:], numbers)
        # read before the second warming, because that one belongs to the next shard
        measured = self.resources.metrics()
        await self._warm(rows)
        return measured

    async def _warm(self, rows: Sequence[_Row]) -> None:
        for row in rows:
            await self.resources.warm(row.kinds, row.seats, LEASE_SECONDS)

    async def _group(self, specs: Sequence[EpisodeSpec]) -> None:
        rows = _rows(specs, self.spec)
        async with (
            cast(self.sampler, self.spec.frozen, sum(row.seats for row in rows)) as here,
            TaskGroup() as group,
        ):
            for row in rows:
                waiting = iter(row.episodes)
                for _ in range(row.seats):
                    group.create_task(self._seat(here, waiting))

    async def _seat(self, here: Cast, waiting: Iterator[EpisodeSpec]) -> None:
        """Play episodes from `waiting` one by one until `waiting` is empty."""
        for episode_spec in waiting:
            rules = self.spec.of(episode_spec.problem)
            try:
                episode = await play(episode_spec, rules, here, self.resources)
            except (ServiceLost, PromptTooLong, NoReply):
                raise
            except (Exception, SystemExit) as error:
                # `play` handles errors of agents, so this error would occur in every episode
                raise EpisodeBroken.by(error, episode_spec, rules) from error
            self.played.append(episode)
            self.watch(episode.record[0])
        # the sampler must not wait for a task without further episodes
        here.close()


@dataclass(frozen=True, slots=True)
class _Row:
    """A list of episodes, and the environment classes (`kinds`) that they need.

    `seats` is the maximum number of concurrent episodes of the list.
    """

    episodes: Sequence[EpisodeSpec]
    kinds: tuple[type[Environment], ...]
    seats: int


def _rows(episode_specs: Sequence[EpisodeSpec], spec: RolloutSpec) -> list[_Row]:
    """Return two lists of episodes: those without environments, then those with environments.

    The limits of the environments apply only to the second list.
    """
    rows = []
    for needs in (False, True):
        some = [one for one in episode_specs if bool(spec.of(one.problem).kinds) is needs]
        kinds = in_order({kind for one in some for kind in spec.of(one.problem).kinds})
        limits = (spec.limits[kind].limit for kind in kinds)
        seats = min([len(some), *limits, *(spec.of(one.problem).at_once for one in some)])
        rows.append(_Row(some, kinds, seats))
    return rows


async def _ending(spec: RolloutSpec, episode: Episode) -> tuple[Ending, str | None]:
    """Run the agent. Return the ending of the episode, and an error text or None.

    At the episode's deadline, `ResourceManager.leases` cancels the agent.
    """
    agent = f"The agent {injection.name(spec.agent)}"
    try:
        ending = await on_loop(partial(spec.agent, episode), math.inf, agent)
        if standstill := episode.state.parts.failure:
            raise standstill
        require_answer(agent, ending, episode)
        if ending not in (Ending.FAILED, Ending.AGENT_ERROR):
            return ending, None
        name = f"Ending.{ending.name}"
        return ending, f"{agent} returned {name}, at {tracebacks.defined(spec.agent)}"
    except BadEnding as bad:
        error = f"{bad}, at {tracebacks.defined(spec.agent)}"
        warn_once(_log, error)
        return _broken(episode), error
    except EpisodeOver as over:
        # FAILED, because a first prompt that is too long leaves no reply to score
        if over.ending is Ending.MAX_MODEL_LEN and not _begun(episode):
            return Ending.FAILED, _agent_error(agent, over, spec)
        return over.ending, None
    except ServiceFailure:
        raise
    except Exception as error:  # an error in an author's agent ends only this episode
        if standstill := episode.state.parts.failure:
            raise standstill from None
        if episode.state.fault and _stems_from(error, episode.state.fault):
            raise episode.state.fault from None
        return _broken(episode), _agent_error(agent, error, spec)
    finally:
        await episode.state.end()


def _agent_error(agent: str, error: Exception, spec: RolloutSpec) -> str:
    where = _place(error, spec)
    warn_once(_log, f"{agent} failed at {where}:\n{tracebacks.trace(error)}")
    return f"{agent} raised {fault(error)}, at {where}"


def _broken(episode: Episode) -> Ending:
    """Return the ending after an error of the agent.

    The ending is FAILED before the first reply of the episode, and AGENT_ERROR after it.
    """
    # FAILED episodes are not scored. A model must not avoid a low reward by a reply that breaks the
    # agent, so episodes with a reply get AGENT_ERROR.
    return Ending.AGENT_ERROR if _begun(episode) else Ending.FAILED


def _begun(episode: Episode) -> bool:
    return any(speaker.turns for speaker in episode.speakers)


class BadEnding(ValueError):
    """An agent returned an invalid ending.

    The value is not an Ending, or the Ending requires an answer that the agent did not give.
    """


def require_answer(agent: str, ending: object, episode: Episode) -> None:
    """Raise BadEnding if `ending` is not an Ending, or requires an answer that is missing."""
    if not isinstance(ending, Ending):
        raise BadEnding(f"{agent} returned {ending!r}, expected an Ending")
    cut = any(turn.cut for speaker in episode.speakers for turn in speaker.turns[-1:])
    answered = {Ending.TERMINAL: episode.closing, Ending.NO_TOOL_CALLS: episode.turns or cut}
    if answered.get(ending, True) or episode.answered[1] is not None:
        return
    name = f"Ending.{ending.name}"
    spoke = [speaker.name for speaker in episode.speakers if speaker.turns]
    speakers = f" of {' or '.join(spoke)}" if spoke else ""
    call = "speaker.answer(text)" if spoke else "episode.answer(text)"
    raise BadEnding(f"{agent} returned {name} {NO_ANSWER} (call {call}{speakers} first)")


def _stems_from(error: BaseException | None, fault: Exception) -> bool:
    """Whether an error is `fault`, or was raised while `fault` was being handled."""
    if error is None or error is fault:
        return error is fault
    grouped = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return any(_stems_from(one, fault) for one in (*grouped, error.__context__))


def _place(error: BaseException, spec: RolloutSpec) -> str:
    return tracebacks.own_line(error) or tracebacks.defined(spec.agent)


def _record(
    episode_spec: EpisodeSpec,
    spec: RolloutSpec,
    episode: Episode,
    ending: Ending,
    error: str | None = None,
) -> list[Trajectory]:
    """Return the speakers' trajectories. The speaker that gave the final answer comes first.

    If no speaker gave an answer, the episode's main speaker comes first.
    """
    step, problem, chain = episode_spec.step, episode_spec.problem, episode_spec.chain
    main, *others = episode.speakers
    policies = {role: frozen.name for role, frozen in spec.frozen.items()}
    answering, answer = episode.answered
    trajectories = [
        Trajectory(
            id=episode_spec.trajectory(speaker.name),
            episode=episode_spec.id,
            problem=problem,
            group=hashing.short(step, problem.id, *([] if speaker is main else [speaker.role])),
            chain=chain,
            agent=speaker.name,
            role=episode_spec.role,
            turns=speaker.turns,
            closing=speaker.closing,
            ending=ending,
            error=error,
            observed={},
            seed=episode_spec.seed,
            answered=answer if speaker.name == answering else None,
            policy=policies.get(speaker.role, ""),
        )
        for speaker in (main, *(other for other in others if other.turns))
    ]
    # a stable sort: the other speakers keep their order
    return sorted(trajectories, key=lambda one: one.agent != answering)
