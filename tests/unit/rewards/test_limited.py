"""What is computed for an answer ends, however it goes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from agentfly_core.rewards.limited import MEMORY, limited


def too_long() -> float:
    return 9.0**9 if 9**9**9 else 0.0


def too_much() -> float:
    return float(len(bytearray(2 * MEMORY)))


def without_end() -> float:
    return without_end()


def crash() -> float:
    os.kill(os.getpid(), signal.SIGUSR2)
    return 1.0


def shot() -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 1.0


def test_a_result_is_handed_back() -> None:
    assert limited(lambda: 0.5) == 0.5


@pytest.mark.parametrize("work", [too_long, too_much, without_end, crash, lambda: 1 / 0])
def test_what_overruns_its_limits_or_raises_has_no_result(work: Callable[[], float]) -> None:
    assert limited(work, seconds=1) is None


def test_what_is_killed_from_outside_is_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="was killed: SIGKILL"):
        limited(shot)
