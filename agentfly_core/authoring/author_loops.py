"""Event loops for author code, so that blocking code there does not block ours.

Tools, rewards and environments share the loop "parts", so that they can share clients; agents have
the loop "agents". A loop that does not answer is replaced.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from agentfly_core.authoring.author_call import Overdue, PendingCall, harmless
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.system import background_loop

R = TypeVar("R")
Which = Literal["parts", "agents"]
TICK = 0.1
LONGEST_TICK = 1.0  # what is more is not the loop's fault: the whole process stood still
GRACE = 1.0
STEP_SECONDS = 60.0
ADVICE: dict[Which, str] = {
    "parts": "use `await` with an async client, `await asyncio.to_thread(...)`, a plain `def` for "
    "a tool or reward, which runs in a thread, or process=True",
    "agents": "an agent or a policy has to `await` whatever takes time",
}
_log = logging.getLogger(__name__)
calling_work: contextvars.ContextVar[PendingCall | None] = contextvars.ContextVar(
    "work", default=None
)
"""The call from within which code runs."""
_loops: dict[Which, Loop] = {}
_turn = threading.Lock()


class LoopLost(ServiceFailure):
    """A call that waited behind other code that held their event loop until it was given up."""


def loop(which: Which) -> Loop:
    """The current loop for authors' code; a new one after the last was abandoned."""
    with _turn:
        if not _loops:
            threading.Thread(target=_watch, name="watch", daemon=True).start()
        if which not in _loops or _loops[which].given_up:
            _loops[which] = Loop(which)
        return _loops[which]


class Loop:
    """An event loop for author code that is watched from outside.

    It is given up when an overdue call blocks it, or code without a limit blocks it for
    STEP_SECONDS. Then the blocking call ends as Overdue, all others as LoopLost, and their
    environments are lost.
    """

    def __init__(self, which: Which) -> None:
        self.given_up = False
        self._advice = ADVICE[which]
        self._loop, self._thread = background_loop.started(f"authors' {which}")
        self._loop.set_task_factory(self._made)
        self._mailbox = background_loop.mailbox(self._loop)
        self._works: dict[PendingCall, asyncio.Task[None] | None] = {}
        self._owners: WeakKeyDictionary[asyncio.Future[Any], PendingCall | None] = (
            WeakKeyDictionary()
        )
        self._residents: WeakValueDictionary[int, Environment] = WeakValueDictionary()
        self._answered, self._held = True, 0.0
        self._holding: asyncio.Task[Any] | None = None

    def begin(self, work: PendingCall, function: Callable[[], Awaitable[None]]) -> None:
        """Run `await function()` here, in the caller's context; `work` hears the outcome."""
        context = contextvars.copy_context()
        context.run(calling_work.set, work)
        with _turn:
            self._works[work] = None
            if self.given_up:
                work.settle(LoopLost("other code held the event loop until it was given up"))
        self._post(functools.partial(self._start, work, function), context)

    def cancel(self, work: PendingCall) -> None:
        """Cancel what was begun, which may not listen."""
        work.cancel()
        self._post(functools.partial(self._cancel, work))

    def adopt(self, environment: Environment) -> None:
        """Have an environment lost with this loop."""
        with _turn:
            self._residents[id(environment)] = environment

    def is_held_by(self, work: PendingCall) -> bool:
        """Whether the loop does not answer for what this call does at the moment."""
        return not self._answered and self._holder(asyncio.current_task(self._loop)) is work

    def is_held_by_another(self, work: PendingCall) -> bool:
        """Whether something other than this call runs now; how long is known two TICKs later."""
        task = asyncio.current_task(self._loop)
        return task is not None and self._holder(task) is not work

    def look(self, passed: float) -> None:
        """See if it answers, `passed` seconds after the last look; give up one held for long."""
        if self._answered:
            self._answered, self._holding = False, None
            self._soon(self._answer)
            return
        # The answer did not come within a TICK: one task has run all that time, or code has that
        # belongs to none. Tasks cannot be interrupted from outside, so the whole loop is given up.
        task = asyncio.current_task(self._loop)
        self._held = self._held + passed if task is self._holding else passed
        self._holding, holder = task, self._holder(task)
        for work in set(self._works) - {holder}:
            work.lost += passed
        longest = math.inf  # a call that has time left may hold the loop
        if holder and holder.overdue >= GRACE:
            longest = GRACE
        elif holder is None or holder.seconds == math.inf:
            longest = STEP_SECONDS
        if self._held >= longest:
            self._give_up(holder)

    def _give_up(self, holder: PendingCall | None) -> None:
        what = holder.what if holder else "Code that no call stands for"
        fault = f"{what} held the event loop for {self._held:.3g} s: {self._advice}"
        stack = self._stack()  # first, since the code and its thread can end as soon as calls end
        with _turn:
            self.given_up = True
            for environment in list(self._residents.values()):
                environment.lost = True
            for work in list(self._works):
                work.settle(Overdue(fault) if work is holder else LoopLost(fault))
        self._soon(self._loop.stop)
        _log.warning("%s.%s", fault, stack)

    def _stack(self) -> str:
        """The lines that the loop runs at the moment; empty once its thread has ended."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return f" It runs:\n{''.join(traceback.format_stack(frame))}" if frame else ""

    def _post(
        self, callback: Callable[[], None], context: contextvars.Context | None = None
    ) -> None:
        """Run a callback on the loop; a closed loop drops it, and `look` settles what was begun."""
        with suppress(RuntimeError):
            self._mailbox.post(callback, context)

    def _soon(self, callback: Callable[[], None]) -> None:
        """Run a callback on the loop, unless it is closed: no error may end the watch."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _start(self, work: PendingCall, function: Callable[[], Awaitable[None]]) -> None:
        self._works[work] = task = self._loop.create_task(_done(work, function))
        task.add_done_callback(functools.partial(self._end, work))

    def _cancel(self, work: PendingCall) -> None:
        if task := self._works.get(work):
            task.cancel()

    def _end(self, work: PendingCall, task: asyncio.Task[None]) -> None:
        del self._works[work]
        if task.cancelled():
            work.settle(RuntimeError("it was cancelled from within"))

    def _answer(self) -> None:
        self._answered = True

    def _holder(self, task: asyncio.Task[Any] | None) -> PendingCall | None:
        return self._owners.get(task) if task else None

    def _made(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[None, None, R] | Generator[None, None, R],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[R]:
        """A task that is known to belong to the call in which it was made."""
        task = asyncio.Task(work, loop=loop, name=name, context=context)
        self._owners[task] = calling_work.get()
        return task


async def _done(work: PendingCall, function: Callable[[], Awaitable[None]]) -> None:
    work.begin()
    try:
        await function()
        work.settle(None)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # raised again by who waits for it
        work.settle(harmless(error))


def _watch() -> None:
    last = time.monotonic()
    while True:
        time.sleep(TICK)
        now = time.monotonic()
        for one in list(_loops.values()):
            if not one.given_up:
                one.look(min(now - last, LONGEST_TICK))
        last = now
