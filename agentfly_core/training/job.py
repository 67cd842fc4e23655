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
    """An update from the learner state `start` (such as "step/6") to the state `end`, with the
    paths of its inputs.

    - `start`: with the prefix "fresh:", the update begins with a new optimizer
    - `policy`: the policy directory at `start`
    - `learner`: the saved optimizer state; None for a new optimizer, or if the state is in memory
      only
    - `scores`: None if the rollouts are demonstrations
    - `rewards`: the weights of rewards by name
    - `batch`: the number of trajectories in a mini-batch; None for `update.mini_batches`
    - `reference`: the directory of the policy for the KL penalty
    - `before`: the metrics of the run's last update, for adaptive settings and the count of skipped
      steps
    - `held_out`: demonstrations; their loss is measured after the update
    - `adapter`: if set, only an adapter is trained: the adapter in `policy` on the model `base`, or
      a new adapter that is initialised with `seed`
    - `reference_base`: the base model of the reference policy, if that is an adapter
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
    """The learner died or lost its state. The update must be repeated."""


class LearnerFailed(RuntimeError):
    """A request failed in the learner. The message ends with the learner's traceback."""


class WorkerMessage(BaseModel):
    """A message between the workers and their client, sent as a line of JSON. Each request has its
    own connection.
    """

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
    """A reply: the state that should be saved is not in memory."""

    reason: str


class Failure(WorkerMessage):
    error: str
    traceback: str


WorkerRequest = Annotated[AskLabel | RunUpdate | SavePolicy | SaveState, Field(discriminator="op")]
WorkerReply = StepsDone | Result | Lost | Failure
