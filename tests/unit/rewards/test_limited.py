"""The computation for an answer always ends."""

import os
import resource
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


def test_a_result_is_returned() -> None:
    assert limited(lambda: 0.5) == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("work", [too_long, too_much, without_end, crash, lambda: 1 / 0])
def test_an_overrun_or_an_error_has_no_result(work: Callable[[], float]) -> None:
    assert limited(work, seconds=1) is None


def below_the_limits_of_a_cluster(status: Callable[[], bool]) -> bool:
    """The result of a fork with lower hard limits than an answer has."""
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (3, 3))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY * 64, MEMORY * 64))
        os._exit(0 if status() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_lower_limits_of_the_machine_are_accepted() -> None:
    assert below_the_limits_of_a_cluster(lambda: limited(lambda: 1.0, seconds=5) == 1.0)


def test_a_failed_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: 1 / 0)
    with pytest.raises(RuntimeError, match="could not be started"):
        limited(lambda: 1.0)


def test_a_kill_from_outside_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="was killed: SIGKILL"):
        limited(shot)
