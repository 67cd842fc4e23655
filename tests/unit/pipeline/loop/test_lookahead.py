"""Rollouts that begin before earlier updates have finished."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.pipeline.loop.lookahead import PlayedStep, ahead
from agentfly_core.store.artifact import Artifact, Pointer
from tests.support.waiting import LIMIT

POLICIES = [Pointer(f"policy {k}", str(k)) for k in range(5)]


def run(staleness: int) -> Any:
    rollout = SimpleNamespace(max_staleness=staleness)
    return SimpleNamespace(
        settings=SimpleNamespace(start_step=0, own_steps=range(1, 5), rollout=rollout)
    )


def sampled_from(staleness: int) -> list[tuple[int, int, str]]:
    """Return for each step the version and the policy of its rollout."""
    sampled: list[tuple[int, int, str]] = []

    def play(policy: Artifact, version: int, step: int) -> PlayedStep:
        sampled.append((step, version, policy.uri))
        return [], policy

    with ahead(run(staleness), play) as played_by:
        for step in range(1, 5):
            played_by(step, POLICIES[step - 1])
    return sampled


@pytest.mark.parametrize(
    ("staleness", "versions"),
    [(0, [0, 1, 2, 3]), (1, [0, 0, 1, 2]), (2, [0, 0, 0, 1]), (9, [0, 0, 0, 0])],
)
def test_the_policy_of_a_step_does_not_depend_on_speed(staleness: int, versions: list[int]) -> None:
    assert sampled_from(staleness) == [
        (k + 1, version, f"policy {version}") for k, version in enumerate(versions)
    ]


def test_the_next_step_is_played_during_the_update() -> None:
    from threading import Event

    begun = Event()

    def play(policy: Artifact, version: int, step: int) -> PlayedStep:
        if step == 2:
            begun.set()
        return [], policy

    with ahead(run(1), play) as played_by:
        played_by(1, POLICIES[0])
        assert begun.wait(LIMIT)


def test_an_error_of_a_rollout_reaches_its_step() -> None:
    def play(policy: Artifact, version: int, step: int) -> PlayedStep:
        raise ValueError(f"step {step}")

    with pytest.raises(ValueError, match="step 1"), ahead(run(1), play) as played_by:
        played_by(1, POLICIES[0])
