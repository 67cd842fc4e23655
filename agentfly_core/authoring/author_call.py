"""A call of an author's function, shared by who waits and the loop or thread that runs it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from agentfly_core.system.background_loop import mailbox
from agentfly_core.system.formats.text import fault, shown

R = TypeVar("R")


class Overdue(Exception):
    """A function gave no result in time: `Overdue("no result within 30 s")`."""


class PendingCall:
    """A call on another loop: `PendingCall("The tool 'search'", 30.0)`.

    `ended` gets its error or None once. `lost` seconds were taken by other code on its loop.
    """

    def __init__(self, what: str, seconds: float) -> None:
        self.what, self.seconds = what, seconds
        self.lost = 0.0
        self._asker = asyncio.get_running_loop()
        self._begun = self._cancelled = math.inf
        self.ended: asyncio.Future[Exception | None] = self._asker.create_future()

    def begin(self) -> None:
        """Start the call's clock, from any thread, just before its first line runs."""
        self._begun = time.monotonic()

    def cancel(self) -> None:
        """Cancel the call, however much time it has left."""
        self._cancelled = time.monotonic()

    def settle(self, error: Exception | None) -> None:
        """End the call with an error, or None where it returned; from any thread."""
        with suppress(RuntimeError):  # the asker's loop was closed meanwhile
            mailbox(self._asker).post(functools.partial(self._settle, error))

    @property
    def begun(self) -> bool:
        """Whether it has started to run."""
        return self._begun < math.inf

    @property
    def spent(self) -> float:
        """The seconds of its own time so far."""
        return max(0.0, time.monotonic() - self._begun - self.lost)

    @property
    def overdue(self) -> float:
        """Seconds past its time limit; negative while it has time left."""
        return max(self.spent - self.seconds, time.monotonic() - self._cancelled)

    async def ends_within(self, seconds: float) -> bool:
        """Wait until it ends or has run for this many seconds, and return whether it ended."""
        while not self.ended.done() and (left := seconds - self.spent) > 0:
            await asyncio.wait([self.ended], timeout=left)
        return self.ended.done()

    def check(self) -> None:
        """Raise what it raised."""
        if (error := self.ended.result()) is not None:
            raise error

    def overran(self) -> Overdue:
        """What to say when it has had its time: whatever came of it later is not looked at."""
        if self.ended.done() and isinstance(error := self.ended.result(), Overdue):
            return error  # it held the loop
        return Overdue(f"no result within {self.seconds:g} s")

    def _settle(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


class Seats:
    """A fair semaphore for several event loops: `async with Seats(8): ...`."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Future[None]] = deque()
        self._turn = threading.Lock()

    async def __aenter__(self) -> None:
        mine = Future[None]()
        with self._turn:
            if self._free:
                self._free -= 1
                return
            self._waiting.append(mine)
        try:
            await asyncio.wrap_future(mine)
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was given a seat in the same moment
                self._leave()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        """Hand the seat to the call that waits longest and was not cancelled."""
        with self._turn:
            while self._waiting:
                longest = self._waiting.popleft()
                if longest.set_running_or_notify_cancel():
                    longest.set_result(None)
                    return
            self._free += 1


async def in_thread(function: Callable[[], R], seconds: float, what: str) -> R:
    """The result of `function()` in a thread of its own; raises Overdue, or what it raised."""
    # asyncio.to_thread has too few threads for a shard of slow tools, and the end of the loop waits
    # for hung ones.
    work = PendingCall(what, seconds)
    results: list[R] = []

    def run() -> None:
        try:
            results.append(function())
            work.settle(None)
        except BaseException as error:  # no Ctrl-C comes to this thread: the function raised it
            work.settle(harmless(error))

    work.begin()
    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    if await work.ends_within(seconds):
        work.check()
        return results[0]
    raise work.overran()


def harmless(error: BaseException) -> Exception:
    """What was raised, as an Exception: an author's code cannot end the program (`sys.exit`)."""
    if isinstance(error, Exception):
        return error
    text = f"it called exit({shown(error.code)})" if isinstance(error, SystemExit) else fault(error)
    return RuntimeError(text).with_traceback(error.__traceback__)
