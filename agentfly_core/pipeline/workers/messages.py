"""Messages between a session and its workers: lines of JSON on a socket."""

from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from agentfly_core.authoring.call_table import CallRecord
from agentfly_core.inference.sampler import NoReply, SamplerLost
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.pipeline.workers.job import Blame, DemonstrationJob, RolloutJob
from agentfly_core.rollout.rules import PromptTooLong
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.progress import Progress

ERRORS = {
    kind.__name__: kind
    for kind in (
        SamplerLost,
        NoReply,
        GateClosed,
        PromptTooLong,
        EpisodeBroken,
        CancelledError,
        ValueError,
        FileNotFoundError,
    )
}
"""Types of worker errors that the session raises again with the same type."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message, with the experiment. `sampler` is the address of vLLM, or empty.

    `code` has the digests of the author's modules that rollouts use. `tokenizer` is the import path
    of the class of the model's tokenizer.
    """

    name: str
    settings: Mapping[str, Any]
    code: Mapping[str, str]
    site: Mapping[str, Any]
    store: str
    cache: str
    pinned: Mapping[str, str]
    model: Pointer
    tokenizer: str
    sampler: str
    path: tuple[str, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """A job for the worker, with the `blame` of earlier attempts and the `metrics` measured so far:
    `{"time/swap": 0.4}`.
    """

    job: RolloutJob | DemonstrationJob
    blame: Blame
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class End:
    """Close the environments and end the worker."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the job; its result is not needed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A worker's question: does the budget allow a request to a chat service?"""

    service: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """The answer to Asked. `refusal` is the error message if the budget is spent."""

    refusal: str


@dataclass(frozen=True, slots=True)
class Spent:
    """The number of tokens that an answer of a chat service used."""

    service: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Logged:
    """A log record. With `once`, the session logs the same warning only once."""

    logger: str
    level: int
    text: str
    once: str


@dataclass(frozen=True, slots=True)
class JobDone:
    """The result of a job: the published artifact.

    A `worn` worker must be replaced, because it still runs calls that nobody waits for.
    """

    artifact: Pointer
    worn: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of the job: `Failed("GateClosed", "9 of 64 episodes failed ...", False)`.

    For errors of other types than ERRORS, `text` is the traceback.
    """

    kind: str
    text: str
    worn: bool

    @property
    def error(self) -> Exception:
        """The error as an exception."""
        kind = ERRORS.get(self.kind, RuntimeError)
        # not by its __init__, because PromptTooLong has other parameters
        return kind.__new__(kind, self.text)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A worker ends itself: the reason, and the calls that caused it: `GivenUp("held the event loop
    ...", (CallRecord(...),))`.
    """

    how: str
    calls: tuple[CallRecord, ...]


ToWorker = Setup | Assigned | Cancel | End | Allowed
FromWorker = Progress | Logged | Asked | Spent | JobDone | Failed | GivenUp
_ADAPTERS = {
    kind.__name__: TypeAdapter[ToWorker | FromWorker](kind)
    for kind in get_args(ToWorker | FromWorker)
}


def encoded(message: ToWorker | FromWorker) -> bytes:
    """Encode a message as a line: `["Spent", {"service": "judge", "tokens": 12}]`."""
    return to_json([type(message).__name__, message])


def decoded(line: bytes) -> ToWorker | FromWorker:
    """Decode the message in a line."""
    name, content = from_json(line)
    return _ADAPTERS[name].validate_python(content)
