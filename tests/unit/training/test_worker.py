"""How the learner's program answers a request that fails."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.testing.learning import update_job
from agentfly_core.testing.trajectories import trajectory, turn
from agentfly_core.training.distributed import Ranks
from agentfly_core.training.engine import Memory
from agentfly_core.training.job import (
    AskLabel,
    Failure,
    Result,
    RunUpdate,
    SaveState,
    WorkerReply,
)
from agentfly_core.training.worker import Worker, answer


@dataclass(frozen=True)
class Alone(Ranks):
    """The first of two ranks, without a process group; the other one fails too, or is missing."""

    other_fails: bool

    def broadcast(self, text: str) -> str:
        return text

    def gather(self, patience: timedelta) -> bool:
        return self.other_fails


def worker(other_fails: bool = True) -> Worker:
    channel: Any = None
    return Worker(Alone(0, 2, channel, other_fails), Memory(0, "none", False), 96)


def continuing(folder: Path) -> RunUpdate:
    """A request to continue from a state that is neither in memory nor saved."""
    job = update_job(folder, [trajectory(turn([1], {2: -0.5}))], [1.0], folder)
    return RunUpdate(job=replace(job, start="step/6", learner=None))


def test_the_state_of_another_update_is_not_saved(tmp_path: Path) -> None:
    replies = list[WorkerReply]()
    request = SaveState(label="step/6", folder=tmp_path)
    answer(worker(), request.model_dump_json(), replies.append)
    (reply,) = replies
    message = "The learner has the state None in memory, not 'step/6'."
    assert reply == Failure(error=message, lost=True)
    assert not [*tmp_path.iterdir()]


def test_a_failed_request_is_answered_and_leaves_no_state(tmp_path: Path) -> None:
    replies, learner = list[WorkerReply](), worker()
    learner.label = "step/5"
    answer(learner, continuing(tmp_path).model_dump_json(), replies.append)
    (reply,) = replies
    assert isinstance(reply, Failure)
    assert "First repeat the updates" in reply.error
    assert "_engine_at" in reply.error
    assert not reply.lost
    answer(learner, AskLabel().model_dump_json(), replies.append)
    assert replies[-1] == Result(value=None)


def test_a_rank_that_fails_alone_ends_its_process(tmp_path: Path) -> None:
    replies = list[WorkerReply]()
    with pytest.raises(SystemExit):
        answer(worker(other_fails=False), continuing(tmp_path).model_dump_json(), replies.append)
    assert replies == []
