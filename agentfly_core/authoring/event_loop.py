"""The event loop of this process on which agents, tools, environments and rewards run.

The loop runs in its own thread until the process ends. Code "holds" the loop if the code blocks all
other work on the loop. If code holds the loop for too long, later work runs on a new loop.
"""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from agentfly_core.authoring import call_table
from agentfly_core.authoring.call_table import CallRecord
from agentfly_core.system import background_loop

R = TypeVar("R")
TICK = 0.25
LONGEST = 60.0
"""The number of seconds for which code without its own time limit may block the event loop."""
END_SECONDS = 30.0
ADVICE = (
    "`await` slow work, with an async client or `asyncio.to_thread`. For a tool or reward you can "
    "also use a plain `def`, which runs in a thread, or process=True"
)


class LoopHeld(RuntimeError):
    """Code blocked the event loop for too long.

    Example of the message: "The tool 'search' held the event loop for more than 30 s: ...". `call`
    is the call (for example of a tool) that blocked the loop. `call` is None if the code does
    not belong to a call.
    """

    def __init__(self, call: CallRecord | None) -> None:
        seconds = call.longest if call else LONGEST
        self.call, self.how = call, f"held the event loop for more than {seconds:g} s: {ADVICE}"
        super().__init__(f"{call.what if call else 'Code outside of calls'} {self.how}")


HeldCalls = Mapping[tuple[str, str], str]
"""Calls that blocked the event loop, and are therefore skipped when the work is repeated.

A key contains the name of the call and the id of the episode. The value is the error message.

Example: `{("The tool 'search'", "9f2c01d4"): "The tool 'search' held the event loop ..."}`.
"""
NONE_HELD: HeldCalls = {}


class Interrupted(BaseException):
    """Raised by `run` after another thread has called `interrupt`."""


class _Loop:
    """An event loop in its own thread. `answered` is the time when the loop last ran a callback."""

    def __init__(self) -> None:
        self.loop = background_loop.started("authors")
        self.answered = 0.0

    def require_answers(self) -> None:
        """Check that the loop still runs callbacks.

        Raises LoopHeld if a call (for example of a tool) or other code has blocked the loop for too
        long.
        """
        self.loop.call_soon_threadsafe(self._answer)
        holder = call_table.table.holder
        silent = time.monotonic() - self.answered > LONGEST
        # silence alone is not enough: a call may hold the loop within its own time limit
        if (holder and holder.overdue) or (silent and not holder):
            raise LoopHeld(holder)

    def _answer(self) -> None:
        self.answered = time.monotonic()


_turn = threading.Lock()
_loops: list[_Loop] = []
_interrupted = threading.Event()


def interrupt() -> None:
    """Cancel the coroutine that `run` is running. `run` then raises Interrupted."""
    _interrupted.set()


def forget_interrupt() -> None:
    """Discard a late call of `interrupt`, so that it does not cancel the next `run`."""
    _interrupted.clear()


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine on the event loop, in the context of the calling thread, and return its
    result.

    If another thread calls `interrupt`, the work is cancelled, and Interrupted is raised when the
    work has ended. Raises LoopHeld if code blocks the loop for too long. In this case, all other
    work on the loop is lost, too.
    """
    here, tasks = _current(), list[asyncio.Task[R]]()
    try:
        here.loop.call_soon_threadsafe(lambda: tasks.append(here.loop.create_task(work)))
        return _waited(here, _result(tasks))
    except LoopHeld:
        _give_up(here)
        raise
    except BaseException:  # also after Ctrl-C and for a cancelled flow run
        _waited(here, _end(tasks))
        raise


def without_held_calls(work: Callable[[HeldCalls], R]) -> R:
    """Call `work`, and return the result. If `work` raises LoopHeld, call `work` again.

    The argument of `work` contains the calls (of tools, for example) that have blocked the event
    loop so far. `work` must skip these calls. Raises LoopHeld if one of these calls blocks the
    loop again, or if the code that blocked the loop does not belong to a call.
    """
    held = dict[tuple[str, str], str]()
    while True:
        try:
            return work(held)
        except LoopHeld as error:
            if error.call is None or (call := (error.call.what, error.call.episode)) in held:
                raise
            held[call] = str(error)


def _current() -> _Loop:
    with _turn:
        if not _loops:
            _loops.append(_Loop())
        return _loops[-1]


def _give_up(here: _Loop) -> None:
    """Use a new loop for later work, instead of the blocked loop `here`.

    The blocked loop stops when the code that blocks it returns.
    """
    with _turn:
        _loops.clear()
        # the new table is for the new loop; calls on the old loop still write to the old table
        call_table.renew()
    # a held loop cannot be stopped from outside; it stops itself if it runs again
    here.loop.call_soon_threadsafe(here.loop.stop)


def _waited(here: _Loop, work: Coroutine[Any, Any, R]) -> R:
    here.answered = time.monotonic()  # the loop was not checked since the previous work ended
    future = asyncio.run_coroutine_threadsafe(work, here.loop)
    # polled, because a loop that is held cannot report this
    while not concurrent.futures.wait([future], TICK).done:
        here.require_answers()
        if _interrupted.is_set():
            _interrupted.clear()
            raise Interrupted
    return future.result()


async def _result(tasks: list[asyncio.Task[R]]) -> R:
    return await tasks[0]


async def _end(tasks: list[asyncio.Task[R]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=END_SECONDS)
