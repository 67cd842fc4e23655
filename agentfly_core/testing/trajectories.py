"""Make turns and trajectories from handwritten tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentfly_core.records import trajectory as record


def turn(
    given: Sequence[int],
    *spans: Mapping[int, float],
    read: Sequence[record.Message | record.Observation] = (),
    reply: record.Message | str = "",
    context: int = 0,
    version: int = 0,
    temperature: float | None = None,
) -> record.Turn:
    """Make a turn, such as `turn([1, 87, 203], {57: -0.1, 2: -0.5}, reply="99")`.

    `given` are the prompt's tokens. Each further positional argument (`spans`) maps sampled tokens
    to their log-probabilities. Turns with the same `context` form one sequence of tokens.
    """
    sampled = tuple(
        record.Sampled(tuple(span), tuple(span.values()), version, "stop") for span in spans
    )
    message = record.Message("assistant", reply) if isinstance(reply, str) else reply
    return record.Turn(
        tuple(read), record.Given(tuple(given)), message, sampled, context, temperature=temperature
    )


def trajectory(
    *turns: record.Turn,
    name: str = "t0",
    group: str = "g0",
    chain: int = 0,
    problem: record.Problem | None = None,
    role: record.Role = "train",
    ending: record.Ending = record.Ending.NO_TOOL_CALLS,
    closing: Sequence[record.Observation] = (),
    error: str | None = None,
    observed: Mapping[str, record.Score | record.Unscored] | None = None,
    agent: str = "main",
    episode: str | None = None,
    answered: str | None = None,
    policy: str = "",
) -> record.Trajectory:
    """Make a trajectory from turns in chronological order.

    Without a `problem`, the trajectory gets a problem with the id `problem-{group}`.
    """
    return record.Trajectory(
        id=name,
        episode=name if episode is None else episode,
        problem=problem or record.Problem(f"problem-{group}", "?"),
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
