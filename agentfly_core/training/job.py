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
    """An update from the learner state `start` (such as "step/6") to `end`, with the paths of its
    inputs.

    A `start` with the prefix "fresh:" has a new optimizer. `policy` is the policy directory at
    `start`. `learner` is the saved optimizer state; it is None for a new optimizer, or if the state
    exists only in memory. If `scores` is None, the rollouts are demonstrations. `rewards` maps
    names to weights. `batch` is the number of trajectories in a mini-batch, or None for
    `update.mini_batches`. `before` are the metrics of the run's last update, which adaptive
    settings and skipped steps need.

    After the update, the loss of the demonstrations in `held_out` is measured.

    With `adapter`, only an adapter is trained: the adapter in `policy` on the model `base`, or a
    new one, initialised with `seed`. `reference_base` is the model of a reference adapter.
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
    """A line of JSON between the workers and their client. Each request has its own connection."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class AskLabel(WorkerMessage):
    op: Literal["label"] = "label"


class RunUpdate(WorkerMessage):
    """A request to run an update; the result is its metrics."""

    op: Literal["update"] = "update"
    job: UpdateJob


class SavePolicy(WorkerMessage):
    """A request to write the policy of the state with this label."""

    op: Literal["save_policy"] = "save_policy"
    label: str | None
    folder: Path


class SaveState(WorkerMessage):
    """A request to copy the state with this label (first result) and write it (second result)."""

    op: Literal["save_state"] = "save_state"
    label: str | None
    folder: Path


class StepsDone(WorkerMessage):
    done: int
    total: int


class Result(WorkerMessage):
    value: str | dict[str, float] | None


class Lost(WorkerMessage):
    """The reply that the state to save is not in memory."""

    reason: str


class Failure(WorkerMessage):
    error: str
    traceback: str


WorkerRequest = Annotated[AskLabel | RunUpdate | SavePolicy | SaveState, Field(discriminator="op")]
WorkerReply = StepsDone | Result | Lost | Failure
