"""Call authors' functions with a time limit, on the event loop or in their own thread."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from agentfly_core.authoring import call_table
from agentfly_core.authoring.event_loop import LONGEST
from agentfly_core.system.formats.text import fault, shown

R = TypeVar("R")
GRACE = 1.0
"""Seconds for which a cancelled call may run its cleanup code."""
episode_played: contextvars.ContextVar[str] = contextvars.ContextVar("episode", default="")
"""The id of the episode to which the running code belongs."""
_call: contextvars.ContextVar[AuthorCall | None] = contextvars.ContextVar("call", default=None)


class Overdue(Exception):
    """A function exceeded its time limit: `Overdue("no result within 30 s")`."""


class AuthorCall:
    """A running call of a tool, an agent or other code that users write.

    Example: `AuthorCall("The tool 'search'", 30.0)`. Time in which other calls block the event loop
    does not count towards the time limit. A call in a thread ends when the thread ends. A call on
    the event loop ends when all of its tasks have ended, including tasks that users' code started.
    """

    def __init__(self, what: str, seconds: float, in_thread: bool = False) -> None:
        self._table, self._seconds, self._open, self._row = call_table.table, seconds, 0, 0
        longest = LONGEST if seconds == math.inf else seconds
        # stored, because `renew` may replace the module's table during the call
        self._record = what, episode_played.get(), longest, in_thread
        self._begun, self._held_before, self._held = time.monotonic(), self._table.held, 0.0
        self.cancelled = False

    @property
    def left(self) -> float:
        """The seconds that are left until the call's time limit."""
        # the seconds for which other calls have held the loop since this call began
        others = self._table.held - self._held_before - self._held
        return self._seconds - (time.monotonic() - self._begun - others)

    def require_time(self) -> None:
        """Raise Overdue if the time limit of this call has passed.

        A call that has returned a result after its time limit is also overdue.
        """
        if self.left <= 0:
            raise Overdue(f"no result within {self._seconds:g} s")

    async def wait(self, ended: asyncio.Future[R]) -> None:
        """Wait until the future `ended` is done. Raises Overdue if the time limit passes first."""
        while not ended.done():
            self.require_time()
            await asyncio.wait([ended], timeout=None if self._seconds == math.inf else self.left)

    def begin(self) -> None:
        """Record that a thread or task starts to run the called code."""
        # a server or timer that a call started may begin tasks after the call has ended
        if not self._open:
            self._row = self._table.begin(*self._record)
        self._open += 1

    def end(self, _: object = None) -> None:
        """Record that a thread or task of the called code has ended.

        When all threads and tasks of the call have ended, the call is removed from the table of
        running calls.
        """
        self._open -= 1
        if not self._open:
            self._table.free(self._row)

    def leave(self) -> None:
        """Record that the caller no longer waits for the result of the called code."""
        if self._open:
            self._table.given_up.add(self._row)

    def strike(self) -> None:
        """Record that the called function has ended in its thread.

        The thread itself calls this method, because the event loop may be blocked. `end` is called
        later, on the event loop.
        """
        self._table.strike(self._row)

    def hold(self) -> None:
        """Record that the called code starts to run on the event loop.

        The code blocks the event loop until `release` is called. The blocked time does not count
        towards the time limits of other calls.
        """
        self._table.hold(self._row)

    def release(self) -> None:
        """Record that the called code has paused or ended, and no longer blocks the event loop."""
        self._held += self._table.release()


def is_cancelled() -> bool:
    """Whether the running code belongs to a call that was cancelled."""
    call = _call.get()
    return call is not None and call.cancelled


class Steps(Coroutine[Any, Any, R]):
    """Runs a coroutine of users' code, and records when the coroutine starts to run and pauses.

    These records show which call blocks the event loop. The time in which a call blocks the loop
    does not count towards the time limits of other calls.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, R], call: AuthorCall) -> None:
        self.coroutine, self._call = coroutine, call

    def send(self, value: Any) -> Any:
        """Resume the coroutine with a value."""
        self._call.hold()
        try:
            return self.coroutine.send(value)
        finally:
            self._call.release()

    def throw(self, *error: Any) -> Any:
        """Resume the coroutine with an error, such as CancelledError."""
        self._call.hold()
        try:
            return self.coroutine.throw(*error)
        finally:
            self._call.release()

    def close(self) -> None:
        """Close the coroutine. The time that its cleanup code takes is not recorded."""
        self.coroutine.close()

    def __await__(self) -> Generator[Any, Any, R]:
        return self.coroutine.__await__()


async def on_loop(function: Callable[[], Awaitable[R]], seconds: float, what: str) -> R:
    """Await `function()` in its own task, and return the result.

    Errors of the function are raised. Raises Overdue if the function runs for more than `seconds`.
    After a timeout or a cancellation, the task may continue to run. Its result is then ignored.
    """
    loop = asyncio.get_running_loop()
    loop.set_task_factory(_of_its_call)
    call, context = AuthorCall(what, seconds), contextvars.copy_context()
    context.run(_call.set, call)
    task = loop.create_task(_awaited(function, call), context=context)
    try:
        await call.wait(task)
    except asyncio.CancelledError:
        # set before the task is cancelled, because cleanup code reads `cancelled`
        call.cancelled = True
        task.cancel()
        # Wait a short time for the author's cleanup code. Code that ignores its cancellation must
        # not block the episode.
        await asyncio.wait([task], timeout=GRACE)
        raise
    finally:
        task.cancel()
        call.leave()
    if task.cancelled():
        raise RuntimeError("the function cancelled its own task")
    return task.result()()


async def in_thread(function: Callable[[], R], seconds: float, what: str) -> R:
    """Call `function()` in its own thread, and return the result.

    Errors of the function are raised. Raises Overdue if the function runs for more than `seconds`.
    The thread then continues, and its result is ignored. `what` names the function in the table of
    running calls.
    """
    # `asyncio.to_thread` has too few threads for many slow tools at once. Closing the loop would
    # also wait for threads that hang.
    call, loop = AuthorCall(what, seconds, in_thread=True), asyncio.get_running_loop()
    ended: asyncio.Future[Callable[[], R]] = loop.create_future()

    def settle(outcome: Callable[[], R]) -> None:
        call.end()
        if not ended.done():
            ended.set_result(outcome)

    def run() -> None:
        try:
            outcome = _giving(function())
        except BaseException as error:  # Ctrl-C is never raised in this thread
            outcome = _raising(error)
        # recorded by the thread itself, because the loop may be blocked. A call that has ended must
        # not be blamed for the block.
        call.strike()
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    call.begin()
    # a daemon thread, because a hung call must not keep the process alive
    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    try:
        await call.wait(ended)
        return ended.result()()
    finally:
        call.leave()


def harmless(error: BaseException) -> Exception:
    """Convert any exception to an Exception. A tool's `sys.exit` then does not end the program."""
    if isinstance(error, Exception):
        return error
    text = f"it called exit({shown(error.code)})" if isinstance(error, SystemExit) else fault(error)
    return RuntimeError(text).with_traceback(error.__traceback__)


async def _awaited(function: Callable[[], Awaitable[R]], call: AuthorCall) -> Callable[[], R]:
    """Await `function()`. Return a callable that returns the result or raises the error."""
    # If a task raises SystemExit or KeyboardInterrupt, asyncio raises it out of the loop, which
    # would end all other episodes. So the error is returned as a result.
    try:
        result = await function()
        call.require_time()
        return _giving(result)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # the caller raises it again
        return _raising(error)


def _giving(result: R) -> Callable[[], R]:
    return lambda: result


def _raising(error: BaseException) -> Callable[[], NoReturn]:
    def raise_it() -> NoReturn:
        raise harmless(error)

    return raise_it


def _of_its_call(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, R] | Generator[Any, None, R],
    context: contextvars.Context | None = None,
) -> asyncio.Task[R]:
    """Create a task. The event loop uses this function as its task factory.

    If the code of a running AuthorCall creates the task, this call ends only after the task.
    """
    call = context.get(_call) if context else _call.get()
    if call is None or not isinstance(work, Coroutine):
        return asyncio.Task(work, loop=loop, context=context)
    call.begin()
    task = asyncio.Task(Steps(work, call), loop=loop, context=context)
    task.add_done_callback(call.end)
    return task
