"""The learner's client raises the error that its caller can handle."""

import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfly_core.system.service import Service, ServiceLost
from agentfly_core.training.client import DeepSpeedLearner
from agentfly_core.training.job import (
    Failure,
    LearnerFailed,
    Result,
    WorkerReply,
)


@contextmanager
def replying(*replies: WorkerReply) -> Iterator[DeepSpeedLearner]:
    """A learner that gives these replies to its first request, and hangs up."""
    with (
        tempfile.TemporaryDirectory(prefix="agentfly-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
        ThreadPoolExecutor(1) as thread,
    ):
        address = f"{folder}/learner.sock"
        listener.bind(address)
        listener.listen()

        def serve() -> None:
            channel, _ = listener.accept()
            with channel, channel.makefile("rw") as lines:
                lines.readline()
                for reply in replies:
                    print(reply.model_dump_json(), file=lines, flush=True)

        served = thread.submit(serve)
        yield DeepSpeedLearner(Service("learner", address))
        served.result()


def test_a_learner_without_the_state_is_lost(tmp_path: Path) -> None:
    with replying(Failure(error="not in memory", lost=True)) as learner:
        with pytest.raises(ServiceLost, match="not in memory"):
            learner.save_policy(tmp_path)


def test_a_failure_has_the_traceback_of_the_learner(tmp_path: Path) -> None:
    with replying(Failure(error="no such file, in read_state", lost=False)) as learner:
        with pytest.raises(LearnerFailed, match="no such file, in read_state"):
            learner.save_policy(tmp_path)


def test_a_learner_that_hangs_up_amid_a_save_is_lost(tmp_path: Path) -> None:
    with replying(Result(value=None)) as learner:
        written = learner.save_state(tmp_path)
        with pytest.raises(ServiceLost, match="died during 'save_state'"):
            written()


def test_a_learner_that_cannot_restart_is_lost(tmp_path: Path) -> None:
    gone = DeepSpeedLearner(Service("learner", str(tmp_path / "learner.sock")))
    with pytest.raises(ServiceLost, match="ended, or never started"):
        gone.label()
