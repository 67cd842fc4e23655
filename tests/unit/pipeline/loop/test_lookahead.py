"""Rollouts that begin before earlier updates have finished."""

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.pipeline.loop.lookahead import PlayedStep, ahead, side_by_side
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


def test_items_one_at_a_time_run_in_the_thread_that_gets_interrupts() -> None:
    assert side_by_side(1, lambda _: threading.current_thread(), [1]) == [threading.main_thread()]


def test_items_side_by_side_run_together_and_keep_their_order() -> None:
    together = threading.Barrier(2)

    def number(item: int) -> int:
        together.wait(LIMIT)
        return item

    assert side_by_side(2, number, [2, 1]) == [2, 1]


def test_an_interrupt_starts_no_further_item() -> None:
    begun, released = list[int](), threading.Event()

    def work(item: int) -> None:
        begun.append(item)
        if item == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        released.wait(LIMIT)

    with pytest.raises(KeyboardInterrupt):
        side_by_side(2, work, [1, 2, 3])
    released.set()
    assert begun == [1, 2]
