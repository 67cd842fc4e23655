"""Turns and trajectories from their tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentfly_core.records.trajectory import (
    Ending,
    Given,
    Message,
    Observation,
    Problem,
    Role,
    Sampled,
    Score,
    Trajectory,
    Turn,
    Unscored,
)


def turn(
    given: Sequence[int],
    *spans: Mapping[int, float],
    read: Sequence[Message | Observation] = (),
    reply: Message | str = "",
    context: int = 0,
    version: int = 0,
    temperature: float | None = None,
) -> Turn:
    """A turn with read tokens and the log-probabilities of sampled ones: `turn([1, 87, 203],
    {57: -0.1, 2: -0.5}, reply="99")`; turns of the same `context` are one sequence.
    """
    sampled = tuple(Sampled(tuple(span), tuple(span.values()), version, "stop") for span in spans)
    message = Message("assistant", reply) if isinstance(reply, str) else reply
    return Turn(
        tuple(read), Given(tuple(given)), message, sampled, context, temperature=temperature
    )


def trajectory(
    *turns: Turn,
    name: str = "t0",
    group: str = "g0",
    chain: int = 0,
    problem: Problem | None = None,
    role: Role = "train",
    ending: Ending = Ending.NO_TOOL_CALLS,
    closing: Sequence[Observation] = (),
    error: str | None = None,
    observed: Mapping[str, Score | Unscored] | None = None,
    agent: str = "main",
    episode: str | None = None,
    answered: str | None = None,
    policy: str = "",
) -> Trajectory:
    """A trajectory of turns in the order of time, by default with the problem of its `group`."""
    return Trajectory(
        id=name,
        episode=name if episode is None else episode,
        problem=problem or Problem(f"problem-{group}", "?"),
        group=group,
        chain=chain,
        agent=agent,
        role=role,
        turns=tuple(replace(turn, call=call) for call, turn in enumerate(turns)),
        closing=tuple(closing),
        ending=ending,
        error=error,
        observed=observed or {},
        seed=0,
        answered=answered,
        policy=policy,
    )
