"""What changes weights, and the messages between a learner's workers and their client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from agentfly_core.config.experiment import Adapter, Update
from agentfly_core.config.parts import AlgorithmPart

FRESH = "fresh:"
SKIPPED_IN_A_ROW = 3
OnStep = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, config=ConfigDict(allow_inf_nan=False))
class UpdateJob:
    """One update, by references to what is on disk, between the learner states `start` and `end`.

        UpdateJob(
            start="step/6",  # one that begins with "fresh:" has no history
            end="step/7",
            policy="/store/runs/shop-1f2e/steps/000006/policy",  # HF directory at `start`
            learner="/store/runs/shop-1f2e/steps/000006/learner",
            rollouts=("/store/.../rollout-000/trajectories.parquet",),
            scores="/store/.../scored/scores.parquet",  # None: demonstrations
            algorithm=AlgorithmPart(use="agentfly_core.algorithms.grpo:GRPO", skip_cut=True),
            rewards={"exact": 1.0, "tool_format": 0.2},  # the weight of each reward by its name
            update=Update(learning_rate=1e-6, epochs=1, mini_batches=2),
            batch=None,  # trajectories a mini-batch; None: update.mini_batches
            temperature=1.0, dtype="float32", seed=8123, reference=None,
        )

    `start` and `end` are labels. `before` are the metrics of the run's update before this one: an
    adaptive setting continues from them, as does the count of optimizer steps skipped in a row;
    the update stops after three of them. `learner` is None for a fresh optimizer on
    `policy`, and where the state at `start` was not kept on disk: then the learner must have it in
    memory.

    With an `adapter`, only that is trained: a new one, made from the `seed`, on the model that
    `policy` is, or the one that `policy` is, on the model in the directory `base`. A `reference`
    that is an adapter stands on `reference_base`. In a mixture `tasks` are the names of the rewards
    that each task has.
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
    adapter: Adapter | None = None
    base: str | None = None
    reference_base: str | None = None
    tasks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class LearnerLost(RuntimeError):
    """The learner died, or no longer has the state that it was asked to save; the update must be
    run again.
    """


class LearnerFailed(RuntimeError):
    """The learner could not do what it was asked; the message ends with its own traceback."""


def unobserved(done: int, total: int) -> None:
    """A listener that does nothing with the number of optimizer steps done."""


class Learner(Protocol):
    """Something that changes weights, and keeps them in memory from one update to the next."""

    def label(self) -> str | None:
        """The label of the state in memory, None when there is none. Raises LearnerLost."""

    def update(self, job: UpdateJob, progress: OnStep = unobserved) -> dict[str, float]:
        """Go from `job.start` to `job.end`, from memory if it is at `job.start`, else from disk;
        return the metrics.

        `progress` hears how many optimizer steps are done, of how many. A step whose loss or
        gradient norm is not finite, or whose trajectories have no advantage, is skipped and
        counted. Raises LearnerLost and LearnerFailed.
        """

    def save_policy(self, folder: Path) -> None:
        """Write the newest policy as a Hugging Face or peft directory, with the probe that verifies
        a weight swap.

        The probe, `probe.json`, is `{"tokens": [32 ids], "logprobs": [31 floats]}`: the
        log-probability of each token but the first, given those before it, at temperature 1. Raises
        LearnerLost and LearnerFailed.
        """

    def save_state(self, folder: Path) -> Callable[[], object]:
        """Copy all that a bit-identical resume needs; write it while the learner does what is next.

        What comes back waits until it is written. Both raise LearnerLost and LearnerFailed.
        """


class WorkerMessage(BaseModel):
    """One line of JSON between the workers and their client, which has a connection for each
    request.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class AskLabel(WorkerMessage):
    """Which state is in memory? The result is its label or None."""

    op: Literal["label"] = "label"


class RunUpdate(WorkerMessage):
    """Run an update; the result are its metrics."""

    op: Literal["update"] = "update"
    job: UpdateJob


class SavePolicy(WorkerMessage):
    """Write the policy of the state with this label into a folder."""

    op: Literal["save_policy"] = "save_policy"
    label: str | None
    folder: Path


class SaveState(WorkerMessage):
    """Copy the state with this label, which is the first result, and write it into a folder, which
    is the second.
    """

    op: Literal["save_state"] = "save_state"
    label: str | None
    folder: Path


class StepsDone(WorkerMessage):
    """How many optimizer steps of an update are done, of how many."""

    kind: Literal["steps_done"] = "steps_done"
    done: int
    total: int


class Result(WorkerMessage):
    """What a request asked for."""

    kind: Literal["result"] = "result"
    value: str | dict[str, float] | None


class Lost(WorkerMessage):
    """The state that is to be saved is not in memory."""

    kind: Literal["lost"] = "lost"
    reason: str


class Failure(WorkerMessage):
    """What went wrong, and where."""

    kind: Literal["failure"] = "failure"
    error: str
    traceback: str


WorkerRequest = Annotated[AskLabel | RunUpdate | SavePolicy | SaveState, Field(discriminator="op")]
WorkerReply = Annotated[StepsDone | Result | Lost | Failure, Field(discriminator="kind")]
