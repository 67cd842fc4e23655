"""Messages between a session and its workers: lines of JSON on a UNIX socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from agentfly_core.authoring.call_table import CallRecord
from agentfly_core.inference.sampler import NoReply, SamplerLost
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.pipeline.workers.job import DemonstrationJob, RolloutJob
from agentfly_core.rollout.rules import PromptTooLong
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.progress import Progress
from agentfly_core.system.service import Service

ERRORS = {
    kind.__name__: kind
    for kind in (
        SamplerLost,
        NoReply,
        GateClosed,
        PromptTooLong,
        EpisodeBroken,
        ValueError,
        FileNotFoundError,
    )
}
"""Errors of a worker that are raised in the session as they are."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message, with the experiment. `sampler` is the address of vLLM, or empty.

    `code` has the digests of the author's modules that play.
    """

    name: str
    settings: Mapping[str, Any]
    code: Mapping[str, str]
    site: Mapping[str, Any]
    store: str
    cache: str
    pinned: Mapping[str, str]
    model: Mapping[str, str]
    sampler: str
    path: tuple[str, ...]
    folder: str
    kind: Literal["setup"] = "setup"


@dataclass(frozen=True, slots=True)
class Assigned:
    """A job, after earlier attempts; `metrics` are already measured, `{"time/swap": 0.4}`."""

    job: RolloutJob | DemonstrationJob
    failed: Mapping[str, str]
    suspects: tuple[str, ...]
    metrics: Mapping[str, float]
    kind: Literal["job"] = "job"


@dataclass(frozen=True, slots=True)
class End:
    """The worker closes its environments and ends."""

    kind: Literal["end"] = "end"


@dataclass(frozen=True, slots=True)
class Cancel:
    """The session wants no result of the job; answered by Cancelled, or by the result."""

    kind: Literal["cancel"] = "cancel"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The answer to Asked; `refusal` is the error of a spent budget."""

    refusal: str = ""
    kind: Literal["allowed"] = "allowed"


@dataclass(frozen=True, slots=True)
class Reported:
    """Progress of the job."""

    progress: Progress
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True)
class Logged:
    """A log record; a warning with `once` is logged once in a session."""

    logger: str
    level: int
    text: str
    once: str = ""
    kind: Literal["log"] = "log"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question before a request to a chat service."""

    service: str
    kind: Literal["asked"] = "asked"


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens of an answer of a chat service."""

    service: str
    tokens: int
    kind: Literal["spent"] = "spent"


@dataclass(frozen=True, slots=True)
class JobDone:
    """The published artifact; a `worn` worker still runs calls that were given up."""

    artifact: Pointer
    worn: bool
    kind: Literal["done"] = "done"


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of the job: `Failed("GateClosed", "9 of 64 episodes failed ...")`."""

    error: str
    text: str
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job was cancelled."""

    kind: Literal["cancelled"] = "cancelled"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why the worker ends, and by which call: `GivenUp("held the event loop ...",
    (CallRecord(...),))`.
    """

    how: str
    calls: tuple[CallRecord, ...]
    kind: Literal["given up"] = "given up"


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is ready for jobs."""

    pid: int
    kind: Literal["ready"] = "ready"


ToWorker = Setup | Assigned | Cancel | End | Allowed
FromWorker = Reported | Logged | Asked | Spent | JobDone | Failed | Cancelled | GivenUp | Ready
TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(Annotated[ToWorker, Field(discriminator="kind")])
FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(
    Annotated[FromWorker, Field(discriminator="kind")]
)


def table_of(service: Service, pid: int) -> Path:
    """The file with the calls of a worker."""
    return service.scratch / f"calls-{pid}"


@dataclass(frozen=True)
class MessageLine:
    """One side of the connection; may be written from any thread, is read by one."""

    socket: socket.socket
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _rest: bytearray = field(default_factory=bytearray)

    def send(self, message: ToWorker | FromWorker) -> None:
        """Send a message; raises OSError if the other side is gone."""
        with self._turn:
            self.socket.sendall(to_json(message) + b"\n")

    def receive(self) -> bytes:
        """The next line; raises TimeoutError after the socket's timeout, and EOFError."""
        while (end := self._rest.find(b"\n")) < 0:
            if not (more := self.socket.recv(1 << 20)):
                raise EOFError("the other side is gone")
            self._rest.extend(more)
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line
