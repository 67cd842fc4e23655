"""Playing episodes: one, and a shard of them at the same time."""

from __future__ import annotations

import math
from asyncio import TaskGroup
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from agentfly_core.authoring import calling, injection
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.formats import hashing, tracebacks
from agentfly_core.formats.text import fault
from agentfly_core.inference.sampler import Sampler, SamplerLost, Voice
from agentfly_core.records.timing import Timing
from agentfly_core.records.trajectory import Ending, Score, Trajectory, Unscored
from agentfly_core.rollout.episode import Assignment, Episode, EpisodeOver, PromptTooLong
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.spec import Playbook

LEASE_SECONDS = 120.0


class EpisodeBroken(ValueError):
    """An agent, or what it uses, raised what no episode may end with; the message says which, and in which line."""

    @classmethod
    def by(cls, error: BaseException, assignment: Assignment, playbook: Playbook) -> EpisodeBroken:
        """What ended the playing of an assignment."""
        where = tracebacks.own_line(error) or tracebacks.defined(playbook.agent)
        return cls(
            f"An episode of the problem {assignment.problem.id!r} (chain {assignment.chain}, agent "
            f"{injection.name(playbook.agent)!r}) broke off. It is an error in code, not the model's, so the stage "
            f"stops:\n{tracebacks.trace(error)}\n{fault(error)}\nLook at {where}."
        )


async def play(
    assignment: Assignment, playbook: Playbook, voice: Voice, resources: ResourceManager
) -> tuple[Trajectory, Timing]:
    """Play one episode. A lost service or a deadline that is over ends it as FAILED, its environments closed.

    So does an agent that held its event loop. What the sampler, the template or the agent raises passes.
    """
    episode = Episode(assignment, playbook, voice)
    try:
        async with AsyncExitStack() as stack:
            await _lend(episode, playbook, resources, stack)
            ending = await _ending(playbook, episode)
            seen = _record(assignment, playbook, episode, ending, None, {})
            observed = await _observe(episode, playbook, seen)
        trajectory = _record(assignment, playbook, episode, ending, None, observed)
    except ServiceFailure as failure:
        trajectory = _record(assignment, playbook, episode, Ending.FAILED, fault(failure), {})
    return trajectory, Timing(trajectory.id, tuple(episode.spans))


async def collect(
    assignments: Sequence[Assignment],
    playbook: Playbook,
    sampler: Sampler,
    watch: Callable[[Trajectory], None],
    resources: ResourceManager,
) -> tuple[list[Trajectory], list[Timing], dict[str, float]]:
    """Play a shard of episodes at the same time; `watch` is told each trajectory as it ends.

    Both lists are sorted by (problem, chain, agent); the last is what `resources` measured. There are as many seats as
    there are episodes, or environments if those are fewer: an episode takes a seat when the one before it ends, so that
    whoever sits is never kept from replying. As many environments are there, or starting, when it ends. Raises
    SamplerLost when the shard must be played again, PromptTooLong for a problem that cannot be played, EpisodeBroken
    for whatever else the agent or the template raised, and what `watch` raised.
    """
    played: list[tuple[Trajectory, Timing]] = []

    def note(trajectory: Trajectory, timing: Timing) -> None:
        played.append((trajectory, timing))
        watch(trajectory)

    failure: BaseException | None = None
    try:
        measured = await _play_all(assignments, playbook, sampler, note, resources)
    except BaseExceptionGroup as failures:
        failure = _worst(failures)
    if failure is not None:
        raise failure
    assert len(played) == len(assignments), "an episode was cancelled from within"
    played.sort(key=lambda pair: (pair[0].problem.id, pair[0].chain, pair[0].agent))
    return [trajectory for trajectory, _ in played], [timing for _, timing in played], measured


async def _play_all(
    assignments: Sequence[Assignment],
    playbook: Playbook,
    sampler: Sampler,
    note: Callable[[Trajectory, Timing], None],
    resources: ResourceManager,
) -> dict[str, float]:
    seats = min([len(assignments), *(playbook.limits[kind].limit for kind in playbook.kinds)])
    waiting = iter(assignments)

    async def sit(voice: Voice) -> None:
        for assignment in waiting:
            try:
                played = await play(assignment, playbook, voice, resources)
            except (SamplerLost, PromptTooLong):
                raise
            except (Exception, SystemExit) as error:  # whatever an author's code raised ends the stage, with its place
                raise EpisodeBroken.by(error, assignment, playbook) from error
            note(*played)
        voice.leave()

    resources.warm(playbook.kinds, seats, LEASE_SECONDS)
    async with sampler.shard(seats) as voice, TaskGroup() as group:
        for _ in range(seats):
            group.create_task(sit(voice))
    measured = resources.metrics()
    resources.warm(playbook.kinds, seats, LEASE_SECONDS)
    return measured


async def _lend(episode: Episode, playbook: Playbook, resources: ResourceManager, stack: AsyncExitStack) -> None:
    lease = resources.leases(playbook.kinds, episode.problem, LEASE_SECONDS, playbook.deadline)
    with episode.timed("waiting"):
        episode.lent |= await stack.enter_async_context(lease)


async def _ending(playbook: Playbook, episode: Episode) -> Ending:
    try:
        ending = await _of_agent(playbook, episode)
    except EpisodeOver as over:
        return over.ending
    finally:
        await episode.leave()
    if not isinstance(ending, Ending):
        raise TypeError(f"The agent {injection.name(playbook.agent)} returned {ending!r}, expected an Ending.")
    answered = {Ending.TERMINAL: episode.closing, Ending.NO_TOOL_CALLS: episode.turns}
    if not answered.get(ending, True):
        raise ValueError(f"The agent {injection.name(playbook.agent)} returned {ending!r} before there was any answer.")
    return ending


async def _of_agent(playbook: Playbook, episode: Episode) -> Any:
    """What the agent returned; its time is the episode's deadline, at which this is cancelled."""
    what = f"The agent {injection.name(playbook.agent)}"
    try:
        return await calling.on_loop("agents", partial(playbook.agent, episode), math.inf, what)
    except calling.Overdue as overdue:
        raise ServiceFailure(str(overdue)) from None


async def _observe(episode: Episode, playbook: Playbook, seen: Trajectory) -> dict[str, Score | Unscored]:
    with episode.timed("rewards"):
        return {reward.name: await reward.score(seen, episode.lent) for reward in playbook.rewards}


def _record(
    assignment: Assignment,
    playbook: Playbook,
    episode: Episode,
    ending: Ending,
    error: str | None,
    observed: Mapping[str, Score | Unscored],
) -> Trajectory:
    agent = injection.name(playbook.agent)
    step, problem, chain = assignment.step, assignment.problem, assignment.chain
    return Trajectory(
        id=hashing.short(step, problem.id, chain, agent),
        episode=hashing.short(step, problem.id, chain),
        problem=problem,
        group=hashing.short(step, problem.id),
        chain=chain,
        agent=agent,
        role=assignment.role,
        turns=tuple(episode.turns),
        closing=tuple(episode.closing),
        ending=ending,
        error=error,
        observed=observed,
        seed=assignment.seed,
    )


def _worst(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """One that is worth telling: the shard of a lost sampler can be played again, but not after another mistake."""
    leaves = list(_leaves(failures))
    return next((leaf for leaf in leaves if not isinstance(leaf, SamplerLost)), leaves[0])


def _leaves(failure: BaseException) -> Iterator[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            yield from _leaves(inner)
    else:
        yield failure
