"""The one event loop of a process for agents, tools, environments and rewards.

It runs in a thread of its own, lives as long as the process, and is given up when code holds it for
too long.
"""

from __future__ import annotations

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
"""Seconds for which code without a limit of its own may hold the loop."""
END_SECONDS = 30.0
ADVICE = (
    "`await` whatever takes time, with an async client or `asyncio.to_thread`; or use a plain "
    "`def` for a tool or reward, which runs in a thread, or process=True"
)


class LoopHeld(RuntimeError):
    """Code held the event loop for too long: "The tool 'search' held the event loop for more than
    30 s: ..."; `call` is None for code outside of calls.
    """

    def __init__(self, call: CallRecord | None) -> None:
        seconds = call.longest if call else LONGEST
        self.call, self.how = call, f"held the event loop for more than {seconds:g} s: {ADVICE}"
        super().__init__(f"{call.what if call else 'Code outside of calls'} {self.how}")


HeldCalls = Mapping[tuple[str, str], str]
"""Why calls are not made again, by their names and their episodes: `{("The tool 'search'",
"9f2c01d4"): "The tool 'search' held the event loop ..."}`.
"""
NONE_HELD: HeldCalls = {}


class Interrupted(BaseException):
    """Work that another thread interrupted."""


class _Loop:
    """A loop in its thread, and when it answered last."""

    def __init__(self) -> None:
        self.loop, _ = background_loop.started("authors")
        self.answered = 0.0

    def require_answers(self) -> None:
        """Raise LoopHeld for a loop that code holds for too long."""
        self.loop.call_soon_threadsafe(self._answer)
        holder = call_table.table.holder
        silent = time.monotonic() - self.answered > LONGEST
        if (holder and holder.overdue) or (silent and not holder):
            raise LoopHeld(holder)

    def _answer(self) -> None:
        self.answered = time.monotonic()


_turn = threading.Lock()
_loops: list[_Loop] = []
_interrupted = threading.Event()


def interrupt() -> None:
    """Have the work that runs cancelled; `run` raises Interrupted."""
    _interrupted.set()


def forget_interrupt() -> None:
    """Let later work run; an interrupt of earlier work may have come after its end."""
    _interrupted.clear()


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run `work` on the loop, in this thread's context; an interrupt cancels it and waits.

    Raises LoopHeld; `work` and all other work on that loop is lost then.
    """
    here, tasks = _current(), list[asyncio.Task[R]]()
    try:
        here.loop.call_soon_threadsafe(lambda: tasks.append(here.loop.create_task(work)))
        return _waited(here, _result(tasks))
    except LoopHeld:
        _give_up(here)
        raise
    except BaseException:  # also Ctrl-C and a cancelled flow run: it passes on
        _waited(here, _end(tasks))
        raise


def without_held_calls(work: Callable[[HeldCalls], R]) -> R:
    """The result of `work`, which is repeated without a call that held the event loop of `run`.

    Raises LoopHeld for code outside of calls, and for a call that is made all the same.
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
    """Use a new loop next time; the old one ends after the code that holds it."""
    with _turn:
        _loops.clear()
        call_table.renew()
    here.loop.call_soon_threadsafe(here.loop.stop)


def _waited(here: _Loop, work: Coroutine[Any, Any, R]) -> R:
    here.answered = time.monotonic()  # nobody has asked it since the last work
    future = asyncio.run_coroutine_threadsafe(work, here.loop)
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
