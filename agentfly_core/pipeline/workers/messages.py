"""Messages between a session (a running command) and its workers. They are lines of JSON on a
socket.
"""

from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from agentfly_core.authoring.call_table import CallRecord
from agentfly_core.inference.sampler import NoReply
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.pipeline.workers.job import Blame, DemonstrationJob, RolloutJob
from agentfly_core.rollout.rules import PromptTooLong
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.lock import LockLost
from agentfly_core.system.progress import Progress
from agentfly_core.system.service import ServiceLost

ERRORS = {
    kind.__name__: kind
    for kind in (
        ServiceLost,
        NoReply,
        GateClosed,
        PromptTooLong,
        EpisodeBroken,
        LockLost,
        CancelledError,
        ValueError,
        FileNotFoundError,
    )
}
"""Types of worker errors that the session (the running command that started the worker) raises with
the same type. All other errors of a worker are raised as RuntimeError.
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker. It contains the experiment.

    `code` contains the digests of the user's own modules that are used in rollouts. `tokenizer` is
    the import path of the tokenizer's class. `sampler` is the address of the vLLM server, or "" if
    each worker has its own sampler. `path` is the value of `sys.path`, and `folder` is the working
    directory. `claim` identifies the lock that the main process holds on the run. Without object
    storage, `claim` is empty.
    """

    name: str
    settings: Mapping[str, Any]
    code: Mapping[str, str]
    site: Mapping[str, Any]
    store: str
    cache: str
    claim: Mapping[str, Any]
    pinned: Mapping[str, str]
    model: Pointer
    tokenizer: str
    sampler: str
    path: tuple[str, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """A job for the worker.

    `blame` lists the episodes that killed workers, or may have done so, in earlier attempts at the
    job. `metrics` are metrics that were measured before the job: `{"time/swap": 0.4}`.
    """

    job: RolloutJob | DemonstrationJob
    blame: Blame
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class End:
    """Tells the worker to close its environments and to end."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tells the worker to cancel its job."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Asks whether the budget of a chat service (an LLM behind an HTTP API) allows a request.

    The message goes to the main process. `service` is the name of the chat service.
    """

    service: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """Answers the message `Asked`: may the worker send a request to a chat service (an LLM API)?

    If the budget of the service is spent, `refusal` is the error message. Otherwise `refusal` is
    "", and the request may be sent.
    """

    refusal: str


@dataclass(frozen=True, slots=True)
class Spent:
    """Reports the number of tokens that a request to a chat service (an LLM API) used."""

    service: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Logged:
    """A log record for the main process.

    If the key `once` is set, the main process logs only the first record with this key.
    """

    logger: str
    level: int
    text: str
    once: str


@dataclass(frozen=True, slots=True)
class JobDone:
    """Reports that a job has ended and its artifact is published.

    If `worn` is set, the worker must be replaced, because it is still running calls that were given
    up, for example after a timeout.
    """

    artifact: Pointer
    worn: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """Reports that a job ended with an error: `Failed("GateClosed", "9 of 64 episodes failed ...",
    False)`.

    `kind` is the type of the error. `text` is the message of the error. For a type that is not in
    the constant ERRORS, `text` is the traceback. If `worn` is set, the worker must be replaced (see
    JobDone).
    """

    kind: str
    text: str
    worn: bool

    @property
    def error(self) -> Exception:
        """An exception of the type in the field `kind`. Unknown types become RuntimeError."""
        kind = ERRORS.get(self.kind, RuntimeError)
        # without calling __init__, because PromptTooLong has other parameters
        return kind.__new__(kind, self.text)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Reports that a worker ends itself. `how` is the reason, and `calls` are the calls of tools or
    other functions that caused the end.

    Example: `GivenUp("held the event loop ...", (CallRecord(...),))`.
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
    """Encode a message as a line of JSON: `["Spent", {"service": "judge", "tokens": 12}]`."""
    return to_json([type(message).__name__, message])


def decoded(line: bytes) -> ToWorker | FromWorker:
    """Decode the message in a line of JSON."""
    name, content = from_json(line)
    return _ADAPTERS[name].validate_python(content)
