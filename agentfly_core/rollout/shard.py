"""Playing one episode, or a shard of them concurrently."""

from __future__ import annotations

import math
from asyncio import TaskGroup
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from agentfly_core.authoring import calling, injection
from agentfly_core.authoring.author_call import Overdue
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.formats import hashing, tracebacks
from agentfly_core.formats.text import fault
from agentfly_core.inference.sampler import Sampler, SamplerLost, SamplerSession
from agentfly_core.inference.scripted import NoReply
from agentfly_core.records.timing import Timing
from agentfly_core.records.trajectory import Ending, Trajectory
from agentfly_core.rollout.episode import Episode, EpisodeOver, EpisodeSpec, PromptTooLong
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.spec import RolloutSpec

LEASE_SECONDS = 120.0


class EpisodeBroken(ValueError):
    """An agent, or what it uses, raised what no episode may end with; the message says which, and
    in which line.
    """

    @classmethod
    def by(
        cls, error: BaseException, episode_spec: EpisodeSpec, spec: RolloutSpec
    ) -> EpisodeBroken:
        """What ended the playing of an episode spec."""
        where = tracebacks.own_line(error) or tracebacks.defined(spec.agent)
        return cls(
            f"An episode of the problem {episode_spec.problem.id!r} (chain {episode_spec.chain}, "
            f"agent {injection.name(spec.agent)!r}) broke off. It is an error in code, not the "
            f"model's, so the stage stops:\n{tracebacks.trace(error)}\n{fault(error)}\nLook at "
            f"{where}."
        )


async def play(
    episode_spec: EpisodeSpec,
    spec: RolloutSpec,
    session: SamplerSession,
    resources: ResourceManager,
) -> tuple[Trajectory, Timing]:
    """Play one episode; a lost service or passed deadline ends it FAILED, its environments closed.

    So does an agent that held its event loop. What the sampler, the template or the agent raises
    passes.
    """
    episode = Episode(episode_spec, spec, session)
    lease = resources.leases(spec.kinds, episode.problem, LEASE_SECONDS, spec.deadline)
    try:
        async with AsyncExitStack() as stack:
            with episode.timed("waiting"):
                lent = await stack.enter_async_context(lease)
            for kind, environment in lent.items():
                episode.lent[kind] = environment
            seen = _record(episode_spec, spec, episode, await _ending(spec, episode))
            with episode.timed("rewards"):
                observed = {one.name: await one.score(seen, episode.lent) for one in spec.rewards}
        trajectory = replace(seen, observed=observed)
    except ServiceFailure as failure:
        trajectory = _record(episode_spec, spec, episode, Ending.FAILED, fault(failure))
    return trajectory, Timing(trajectory.id, tuple(episode.spans))


async def collect(
    episode_specs: Sequence[EpisodeSpec],
    spec: RolloutSpec,
    sampler: Sampler,
    watch: Callable[[Trajectory], None],
    resources: ResourceManager,
) -> tuple[list[Trajectory], list[Timing], dict[str, float]]:
    """Play a shard of episodes at the same time; `watch` gets each trajectory as it ends.

    Both lists are sorted by (problem, chain, agent); the last is what `resources` measured. There
    are as many seats as there are episodes, or environments if those are fewer: an episode takes a
    seat when the one before it ends, so that a seated one is never kept from replying. As many
    environments are there, or starting, when it ends. Raises SamplerLost when the shard must be
    played again, PromptTooLong for a problem that cannot be played, NoReply with a scripted policy,
    EpisodeBroken for whatever else the agent or the template raised, and what `watch` raised.
    """
    failure: BaseException | None = None
    try:
        played, measured = await _play_all(episode_specs, spec, sampler, watch, resources)
    except BaseExceptionGroup as failures:
        # the shard of a lost sampler can be played again, but not after another mistake
        failure = failures.split(SamplerLost)[1] or failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if failure is not None:
        raise failure
    assert len(played) == len(episode_specs), "an episode was cancelled from within"
    played.sort(key=lambda pair: (pair[0].problem.id, pair[0].chain, pair[0].agent))
    return [trajectory for trajectory, _ in played], [timing for _, timing in played], measured


async def _play_all(
    episode_specs: Sequence[EpisodeSpec],
    spec: RolloutSpec,
    sampler: Sampler,
    watch: Callable[[Trajectory], None],
    resources: ResourceManager,
) -> tuple[list[tuple[Trajectory, Timing]], dict[str, float]]:
    played: list[tuple[Trajectory, Timing]] = []
    seats = min([len(episode_specs), *(spec.limits[kind].limit for kind in spec.kinds)])
    waiting = iter(episode_specs)

    async def sit(session: SamplerSession) -> None:
        for episode_spec in waiting:
            try:
                trajectory, timing = await play(episode_spec, spec, session, resources)
            except (SamplerLost, PromptTooLong, NoReply):
                raise
            except (Exception, SystemExit) as error:
                # whatever an author's code raised ends the stage, with its place
                raise EpisodeBroken.by(error, episode_spec, spec) from error
            played.append((trajectory, timing))
            watch(trajectory)
        session.close()

    resources.warm(spec.kinds, seats, LEASE_SECONDS)
    async with sampler.shard(seats) as session, TaskGroup() as group:
        for _ in range(seats):
            group.create_task(sit(session))
    measured = resources.metrics()
    resources.warm(spec.kinds, seats, LEASE_SECONDS)
    return played, measured


async def _ending(spec: RolloutSpec, episode: Episode) -> Ending:
    """What the agent returned; its time is the episode's deadline, at which this is cancelled."""
    agent = f"The agent {injection.name(spec.agent)}"
    try:
        ending = await calling.on_loop("agents", partial(spec.agent, episode), math.inf, agent)
    except Overdue as overdue:
        raise ServiceFailure(str(overdue)) from None
    except EpisodeOver as over:
        return over.ending
    finally:
        await episode.leave()
    if not isinstance(ending, Ending):
        raise TypeError(f"{agent} returned {ending!r}, expected an Ending.")
    answered = {Ending.TERMINAL: episode.closing, Ending.NO_TOOL_CALLS: episode.turns}
    if not answered.get(ending, True):
        raise ValueError(f"{agent} returned {ending!r} before there was any answer.")
    return ending


def _record(
    episode_spec: EpisodeSpec,
    spec: RolloutSpec,
    episode: Episode,
    ending: Ending,
    error: str | None = None,
) -> Trajectory:
    agent = injection.name(spec.agent)
    step, problem, chain = episode_spec.step, episode_spec.problem, episode_spec.chain
    return Trajectory(
        id=hashing.short(step, problem.id, chain, agent),
        episode=hashing.short(step, problem.id, chain),
        problem=problem,
        group=hashing.short(step, problem.id),
        chain=chain,
        agent=agent,
        role=episode_spec.role,
        turns=tuple(episode.turns),
        closing=tuple(episode.closing),
        ending=ending,
        error=error,
        observed={},
        seed=episode_spec.seed,
    )
