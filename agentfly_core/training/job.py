"""The inputs of policy updates, and the messages between the learner's workers and their client."""

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
    """The inputs of an update, which trains a learner from one state to the next state.

    - `start`, `end`: the labels of the states before and after the update, such as "step/6". If
      `start` has the prefix "fresh:", the update begins with a new optimizer.
    - `policy`: the folder of the policy at the start
    - `learner`: the folder of the saved state at the start. It is None for a new optimizer, or if
      the state is only in the memory of the learner.
    - `rollouts`, `scores`: the files with trajectories and with their scores. `scores` is None if
      the trajectories are demonstrations.
    - `rewards`: the weight of each reward
    - `batch`: the number of trajectories in a mini-batch. If it is None, each epoch has
      `update.mini_batches` mini-batches.
    - `reference`: the folder of the reference policy of the KL penalty
    - `before`: the metrics of the last update. Algorithms with adaptive settings, such as an
      adaptive KL penalty, need these metrics. One metric is the number of consecutive skipped
      optimizer steps.
    - `held_out`: a file with demonstrations. Their loss is measured after the update.
    - `adapter`: the rank, alpha and layers of the adapter, or None to train all weights. If
      `policy` is an adapter, its training continues. Otherwise `seed` initialises a new adapter.
    - `base`: if `policy` is an adapter, the folder of its base model
    - `reference_base`: if the reference policy is an adapter, the folder of its base model
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


class LearnerFailed(RuntimeError):
    """A request failed in the learner. The message ends with the traceback of the learner."""


class WorkerMessage(BaseModel):
    """A message between the learner's workers and their client, sent as a line of JSON.

    Each request has its own connection.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class AskLabel(WorkerMessage):
    op: Literal["label"] = "label"


class RunUpdate(WorkerMessage):
    """A request to train the policy with an update job. The reply has the metrics of the update."""

    op: Literal["update"] = "update"
    job: UpdateJob


class SavePolicy(WorkerMessage):
    """A request to write the policy to a folder.

    `label` is the label of the learner state with this policy, such as "step/6". The request fails
    if the learner's memory does not contain this state.
    """

    op: Literal["save_policy"] = "save_policy"
    label: str | None
    folder: Path


class SaveState(WorkerMessage):
    """A request to save the learner state with the label `label` in a folder.

    The learner sends two replies of the type Result: the first after the state is copied in memory,
    and the second after the copy is written to the folder.
    """

    op: Literal["save_state"] = "save_state"
    label: str | None
    folder: Path


class StepsDone(WorkerMessage):
    done: int
    total: int


class Result(WorkerMessage):
    value: str | dict[str, float] | None


class Failure(WorkerMessage):
    """The reply to a failed request. If `lost` is true, the learner state that the request needs is
    not in memory.
    """

    error: str
    lost: bool


WorkerRequest = Annotated[AskLabel | RunUpdate | SavePolicy | SaveState, Field(discriminator="op")]
WorkerReply = StepsDone | Result | Failure
