"""Call tools and rewards in child processes, which are killed at their time limit."""

import asyncio
import functools
import json
import math
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypedDict, TypeVar

from pydantic import TypeAdapter

from agentfly_core.authoring.author_call import Overdue, in_thread
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.guarded import GuardedProcess

PROGRAM = "agentfly_core.authoring.process_worker"
START_SECONDS = 120.0
# the number of cores of this container, not of the whole machine
AT_ONCE = len(os.sched_getaffinity(0))

R = TypeVar("R")


@functools.cache
def adapter(kind: type[R]) -> TypeAdapter[R]:
    """The pydantic adapter that reads a type from JSON.

    It is cached, because building it takes milliseconds.
    """
    return TypeAdapter(kind)


class Caller(Protocol):
    """Calls an author's function with bound arguments. `lent` are the environments among these."""

    async def __call__(
        self, function: Callable[[], Awaitable[R] | R], lent: Sequence[Environment]
    ) -> R: ...


class Answer(TypedDict, total=False):
    """The reply of a process: `answer` is the result, `lost` the message of a ServiceFailure."""

    answer: JSON
    lost: str


class Died(Exception):
    """A process ended during a call: `Died("its process died of SIGSEGV")`."""


@dataclass(frozen=True, slots=True)
class Named:
    """A tool or reward for another process: `Named("my_search:Search", {"index": "wiki"})`."""

    path: str
    settings: Mapping[str, JSON]

    @property
    def text(self) -> str:
        """The import path and the settings as JSON."""
        return json.dumps({"use": self.path, "settings": dict(self.settings)})


async def ask(part: Named, question: Mapping[str, JSON], seconds: float) -> JSON:
    """Call a tool or reward in another process, with a limit of `seconds` after its import.

    At most one process per core works at a time. At the time limit, the process and its descendants
    are killed, and Overdue is raised. Also raises Died and ServiceFailure.
    """
    asking = _Asking(part, json.dumps(question), seconds)
    try:
        # no limit here: the wait for a free process does not count, and `ask` has the call's limit
        return await in_thread(asking, math.inf, part.path)
    except asyncio.CancelledError:
        asking.cancel()
        raise


class _Asking:
    """A call that blocks its thread; `cancel` kills its process from another thread."""

    def __init__(self, part: Named, question: str, seconds: float) -> None:
        self._part, self._question, self._seconds = part, question, seconds
        self._turn = threading.Lock()
        self._process: _Process | None = None
        self._cancelled = False

    def __call__(self) -> JSON:
        call = f'{{"ask": {self._part.text}, "question": {self._question}}}'
        with _process() as process:
            with self._turn:
                self._refuse_cancelled()
                self._process = process
            try:
                process.know(self._part)
                answer = process.ask(call, self._seconds)
            finally:  # `cancel` must not kill a process that serves another call
                with self._turn:
                    self._process = None
            self._refuse_cancelled()  # the process was killed after its answer, so it is not reused
        if "lost" in answer:
            raise ServiceFailure(answer["lost"])
        return answer["answer"]

    def _refuse_cancelled(self) -> None:
        if self._cancelled:
            raise Died("its caller was cancelled")

    def cancel(self) -> None:
        with self._turn:
            self._cancelled = True
            if self._process:
                self._process.kill()


class _Process(GuardedProcess):
    """A child process that answers each line of JSON with one line."""

    def __init__(self) -> None:
        super().__init__(PROGRAM, {})
        self._loaded: set[str] = set()

    def know(self, part: Named) -> None:
        """Let the process import a tool or reward, once per settings. Raises ServiceFailure."""
        if part.text in self._loaded:
            return
        asking = f'{{"know": {part.text}, "from": {json.dumps(sys.path)}}}'
        try:
            answer = self.ask(asking, START_SECONDS)
        except (Overdue, Died) as error:
            raise ServiceFailure(
                f"{part.path} could not be imported in a separate process: {error}"
            ) from None
        if "lost" in answer:
            raise ServiceFailure(answer["lost"])
        self._loaded.add(part.text)

    def ask(self, question: str, seconds: float) -> Answer:
        """Send a question, and return its answer. Raises Overdue after `seconds`, and Died."""
        try:
            # sending has the time limit, too: if the process hangs, the socket stays full
            self.lines.socket.settimeout(seconds)
            self.lines.send(question.encode())
            answer: Answer = json.loads(self.lines.receive(seconds))
            return answer
        except TimeoutError:
            self.end()
            raise Overdue(f"no result within {seconds:g} s") from None
        except ValueError:  # the author's code wrote into the socket
            raise Died(f"its process died of {self.end()}") from None
        except (OSError, EOFError):
            raise Died(f"its process died of {self.cause()}") from None


_seats = threading.Semaphore(AT_ONCE)
_idle: list[_Process] = []


@contextmanager
def _process() -> Iterator[_Process]:
    """Yield an idle or a new process. Waits while AT_ONCE processes are working."""
    with _seats:
        try:
            while not (process := _idle.pop()).alive:
                continue
        except IndexError:  # no idle process
            process = _Process()
        try:
            yield process
        except BaseException:  # a process in the middle of a call is not reused
            process.end()
            raise
        if process.alive:
            _idle.append(process)
