"""Call tools and rewards in child processes. A process is killed at the time limit of its call."""

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

from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.time_limits import Overdue, in_thread
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.guarded import GuardedProcess

PROGRAM = "agentfly_core.authoring.process_worker"
START_SECONDS = 120.0
# the number of cores that this process may use, not of the whole machine
AT_ONCE = len(os.sched_getaffinity(0))

R = TypeVar("R")


@functools.cache
def adapter(kind: type[R]) -> TypeAdapter[R]:
    """Return the pydantic adapter that converts JSON to values of a type.

    Adapters are cached, because it takes milliseconds to build an adapter.
    """
    return TypeAdapter(kind)


class Caller(Protocol):
    """Calls the function of a tool or reward. All arguments of the function are already bound.

    `lent` contains the environments among these arguments.
    """

    async def __call__(
        self, function: Callable[[], Awaitable[R] | R], lent: Sequence[Environment]
    ) -> R: ...


class Answer(TypedDict, total=False):
    """The reply of a child process. After the successful import of a tool or reward, the reply is
    empty. All other replies have one key:

    - `answer`: the result of the call
    - `lost`: the message of the error with which the call or the import failed. The caller then
      raises ServiceFailure.
    """

    answer: JSON
    lost: str


class Died(Exception):
    """A child process ended during a call: `Died("its process died of SIGSEGV")`."""


@dataclass(frozen=True, slots=True)
class Named:
    """The import path and settings by which another process finds a tool or reward.

    Example: `Named("my_search:Search", {"index": "wiki"})`.
    """

    path: str
    settings: Mapping[str, JSON]

    @property
    def text(self) -> str:
        """The import path and the settings of the tool or reward, as JSON."""
        return json.dumps({"use": self.path, "settings": dict(self.settings)})


async def ask(part: Named, question: Mapping[str, JSON], seconds: float) -> JSON:
    """Call a tool or reward in a child process, and return the result.

    `question` is passed to the method `answer_apart` of the tool or reward. At most one process per
    core works at a time. `seconds` limits the time of the call itself, without the wait for a
    process and without the import of the tool or reward. After `seconds`, the process and its
    descendants are killed, and Overdue is raised. Raises Died if the process dies, and
    ServiceFailure if the import fails or the function raises ServiceFailure.
    """
    asking = _Asking(part, json.dumps(question), seconds)
    try:
        # without a limit, because waiting for a free process does not count; `_Process.ask` has the
        # call's limit
        return await in_thread(asking, math.inf, part.path)
    except asyncio.CancelledError:
        asking.cancel()
        raise


class _Asking:
    """A call of a tool or reward in a child process.

    The calling thread waits for the result. Another thread can call `cancel`, which kills the child
    process.
    """

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
            finally:  # afterwards `cancel` must not kill the process, which may serve another call
                with self._turn:
                    self._process = None
            self._refuse_cancelled()  # raises if the process was killed after its answer
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
    """A child process that answers each line of JSON with one line of JSON."""

    def __init__(self) -> None:
        super().__init__(PROGRAM, {})

    def know(self, part: Named) -> None:
        """Import a tool or reward in the process, and create it with the settings in `part`.

        A tool or reward is imported only once in each process. Raises ServiceFailure if the import
        fails.
        """
        asking = f'{{"know": {part.text}, "from": {json.dumps(sys.path)}}}'
        try:
            answer = self.ask(asking, START_SECONDS)
        except (Overdue, Died) as error:
            raise ServiceFailure(
                f"{part.path} could not be imported in a separate process: {error}"
            ) from None
        if "lost" in answer:
            raise ServiceFailure(answer["lost"])

    def ask(self, question: str, seconds: float) -> Answer:
        """Send a question to the process, and return the answer.

        Raises Overdue after `seconds`. Raises Died if the process dies or its answer is not JSON.
        """
        try:
            # also limits sending, because the socket stays full if the process hangs
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
    """Yield an idle process or a new process.

    At most one process per core works at a time. If all of them are working, wait until a process
    is idle.
    """
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
