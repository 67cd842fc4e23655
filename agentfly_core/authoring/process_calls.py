"""Calling tools and rewards in child processes, which are killed at their time limit."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypedDict, TypeVar

from pydantic import TypeAdapter

from agentfly_core.authoring.author_call import Overdue, in_thread
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.module_search import for_children

PROGRAM = "agentfly_core.authoring.process_worker"
START_SECONDS = 120.0
END_SECONDS = 30.0
AT_ONCE = len(os.sched_getaffinity(0))

R = TypeVar("R")


@functools.cache
def adapter(kind: type[R]) -> TypeAdapter[R]:
    """Reads a type from plain JSON, as processes exchange it; built once, which takes some ms."""
    return TypeAdapter(kind)


class Caller(Protocol):
    """Calls an author's function that has its arguments and uses the environments among them."""

    async def __call__(
        self, function: Callable[[], Awaitable[R] | R], lent: Sequence[Environment]
    ) -> R: ...


class Answer(TypedDict, total=False):
    """What a process says: its `answer`, or what went wrong with the process or part, `lost`."""

    answer: JSON
    lost: str


class Died(Exception):
    """A process that ended in the middle of a call: `Died("its process died of SIGSEGV")`."""


@dataclass(frozen=True, slots=True)
class Named:
    """A tool or reward for another process: `Named("my_search:Search", {"index": "wiki"})`."""

    path: str
    settings: Mapping[str, JSON]

    @property
    def text(self) -> str:
        """It as JSON."""
        return json.dumps({"use": self.path, "settings": dict(self.settings)})


async def ask(part: Named, question: Mapping[str, JSON], seconds: float) -> JSON:
    """Call a part in another process with JSON; its time begins after the import.

    There are as many processes as cores. Raises Overdue after `seconds`, and kills the process with
    its descendants; also raises Died and ServiceFailure.
    """
    asking = _Asking(part, json.dumps(question), seconds)
    try:
        return await in_thread(asking, math.inf, part.path)
    except asyncio.CancelledError:
        asking.cancel()
        raise


class _Asking:
    """A call as its thread makes it; one that is cancelled has no waiter, its process is killed."""

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
            finally:  # from now on it is another call's, and `cancel` must not kill it
                with self._turn:
                    self._process = None
            self._refuse_cancelled()  # `cancel` killed it after its answer: it serves no other call
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


class _Process:
    """Answers a line of JSON with one; its parent process ends it and all that it started."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._parent = subprocess.Popen(
                [sys.executable, "-u", "-m", PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=for_children(),
            )
        self._loaded: set[str] = set()

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._parent.poll() is None

    def know(self, part: Named) -> None:
        """Import a part with its settings, once; raises ServiceFailure."""
        if part.text in self._loaded:
            return
        asking = f'{{"know": {part.text}, "from": {json.dumps(sys.path)}}}'
        try:
            answer = self.ask(asking, START_SECONDS)
        except (Overdue, Died) as error:
            raise ServiceFailure(
                f"{part.path} could not be imported in a process of its own: {error}"
            ) from None
        if "lost" in answer:
            raise ServiceFailure(answer["lost"])
        self._loaded.add(part.text)

    def ask(self, question: str, seconds: float) -> Answer:
        """Its answer within `seconds`; else it is ended."""
        try:
            end, line = time.monotonic() + seconds, b""
            self._ours.settimeout(seconds)
            self._ours.sendall(question.encode() + b"\n")
            while not line.endswith(b"\n"):
                self._ours.settimeout(max(1e-3, end - time.monotonic()))
                if not (more := self._ours.recv(1 << 20)):
                    raise EOFError
                line += more
            answer: Answer = json.loads(line)
            return answer
        except TimeoutError:
            self.end()
            raise Overdue(f"no result within {seconds:g} s") from None
        except (OSError, EOFError, ValueError):  # ValueError: the code wrote on our line
            raise Died(f"its process died of {self.end()}") from None

    def kill(self) -> None:
        """Have its parent process end it; callable from any thread."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)

    def end(self) -> str:
        """End it, and say what it died of: "SIGSEGV" or "exit code 1"."""
        self.kill()
        self._ours.close()
        try:
            code = self._parent.wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # it hangs itself, and its child ends with it
            self._parent.kill()
            self._parent.wait()
            return signal.SIGKILL.name
        return signal.Signals(code - 128).name if code > 128 else f"exit code {code}"


_seats = threading.Semaphore(AT_ONCE)
_idle: list[_Process] = []


@contextmanager
def _process() -> Iterator[_Process]:
    """One that is idle, or a new one, once fewer than AT_ONCE are at work."""
    with _seats:
        try:
            while not (process := _idle.pop()).alive:
                continue
        except IndexError:  # none is idle
            process = _Process()
        try:
            yield process
        except BaseException:  # it passes on; a process amid something is not used again
            process.end()
            raise
        if process.alive:
            _idle.append(process)
