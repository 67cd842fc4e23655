"""Update jobs, and messages between a learner's workers and their client."""

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from agentfly_core.config.experiment import Adapter, Update
from agentfly_core.config.parts import AlgorithmPart

FRESH = "fresh:"
SKIPPED_IN_A_ROW = 3
OnStep = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, config=ConfigDict(allow_inf_nan=False))
class UpdateJob:
    """One update from the learner state `start`, "step/6", to `end`, with paths of its inputs.

    A `start` with the prefix "fresh:" has no history. `policy` is the directory at `start`;
    `learner` is None for a fresh optimizer, or if the state is in memory only. Without `scores`
    rollouts are demonstrations. `rewards` are weights by name. `batch` is the number of
    trajectories in a mini-batch, or None for `update.mini_batches`. `before` are the metrics of the
    run's last update, for adaptive settings and skipped steps.

    The loss of the demonstrations `held_out` is measured after the update.

    With an `adapter` only the adapter is trained: that of `policy` on the model `base`, or a new
    one from the `seed`. `reference_base` is the model of a reference adapter.
    """

    start: str
    end: str
    policy: str
    learner: str | None
    rollouts: tuple[str, ...]
    scores: str | None
    algorithm: AlgorithmPart
    rewards: Mapping[str, float]
    update: Update
    batch: int | None
    temperature: float
    dtype: str
    seed: int
    reference: str | None
    before: Mapping[str, float] = field(default_factory=dict)
    held_out: str | None = None
    adapter: Adapter | None = None
    base: str | None = None
    reference_base: str | None = None


class LearnerLost(RuntimeError):
    """The learner died or lost its state; the update must be repeated."""


class LearnerFailed(RuntimeError):
    """A request failed in the learner; the message ends with its traceback."""


class WorkerMessage(BaseModel):
    """A line of JSON between the workers and their client; each request has its connection."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class AskLabel(WorkerMessage):
    op: Literal["label"] = "label"


class RunUpdate(WorkerMessage):
    """Request of an update; the result is its metrics."""

    op: Literal["update"] = "update"
    job: UpdateJob


class SavePolicy(WorkerMessage):
    """Request to write the policy of the state with this label."""

    op: Literal["save_policy"] = "save_policy"
    label: str | None
    folder: Path


class SaveState(WorkerMessage):
    """Request to copy the state with this label (first result) and write it (second result)."""

    op: Literal["save_state"] = "save_state"
    label: str | None
    folder: Path


class StepsDone(WorkerMessage):
    done: int
    total: int


class Result(WorkerMessage):
    value: str | dict[str, float] | None


class Lost(WorkerMessage):
    """The state to save is not in memory."""

    reason: str


class Failure(WorkerMessage):
    error: str
    traceback: str


WorkerRequest = Annotated[AskLabel | RunUpdate | SavePolicy | SaveState, Field(discriminator="op")]
WorkerReply = StepsDone | Result | Lost | Failure
