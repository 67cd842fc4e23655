"""Calling what an author wrote: whatever it does, it keeps neither episodes nor the event loop from going on."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from agentfly_core.authoring import author_loops
from agentfly_core.authoring.author_call import LoopLost, Outcome, Overdue, Work
from agentfly_core.authoring.author_loops import Which, harmless
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.system import interpreter_watch

__all__ = ["LoopLost", "Overdue", "call", "in_thread", "made", "nothing_needed", "on_loop"]

E = TypeVar("E", bound=Environment)


async def call(function: Callable[..., Any], arguments: Mapping[str, Any], seconds: float, what: str) -> Any:
    """The result of `function(**arguments)`, called `what` ("The tool 'search'") in errors.

    An asynchronous function runs on the authors' loop, a synchronous one in a thread of its own. Raises Overdue after
    `seconds` of its own time, whether it listens or not, and then marks the environments among the arguments as
    spoilt: a thread cannot be ended, and a cancelled coroutine may leave half a message behind. Raises LoopLost when
    other code held the loop, and ServiceFailure for an environment whose loop was given up. Whatever else the function
    raises arrives as an Exception, also what would end the program (`sys.exit` in model-written code).
    """
    interpreter_watch.watch()
    lent = [value for value in arguments.values() if isinstance(value, Environment)]
    try:
        return await _result(functools.partial(function, **arguments), lent, seconds, what)
    except Overdue:
        for environment in lent:
            environment.spoilt = True
        raise


async def made(kind: type[E], seconds: float) -> E:
    """A new instance of an environment, at home on the authors' loop; raises what `call` does."""
    home = author_loops.loop("parts")

    async def make() -> E:
        environment = kind()
        home.adopt(environment)
        return environment

    environment: E = await _on_loop(home, make, Work(f"{kind.__name__}()", seconds))
    return environment


async def on_loop(
    which: Which,
    function: Callable[[], Awaitable[Any]],
    seconds: float,
    what: str,
    lent: Sequence[Environment] = (),
) -> Any:
    """The result of `await function()`, which uses what it is lent, on one of the authors' loops; raises as `call`.

    Where the loop is given up before the first line ran, it is called once more, on the next loop.
    """
    _refuse_lost(lent)
    work = Work(what, seconds)
    try:
        return await _on_loop(author_loops.loop(which), function, work)
    except LoopLost:
        if work.begun:
            raise
    _refuse_lost(lent)
    return await _on_loop(author_loops.loop(which), function, Work(what, seconds))


def nothing_needed() -> None:
    """The `ready` of what works on every machine."""


async def _result(function: functools.partial[Any], lent: Sequence[Environment], seconds: float, what: str) -> Any:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function.func, "__call__", None)):  # noqa: B004
        return await on_loop("parts", function, seconds, what, lent)
    _refuse_lost(lent)
    result = await in_thread(function, seconds, what)
    if not inspect.isawaitable(result):
        return result

    async def later() -> Any:
        return await result

    return await on_loop("parts", later, seconds, what, lent)


def _refuse_lost(lent: Sequence[Environment]) -> None:
    for environment in lent:
        if environment.lost:
            kind = type(environment).__name__
            raise ServiceFailure(f"{kind} was lost: its event loop was given up, since code held it")


async def _on_loop(loop: author_loops.Loop, function: Callable[[], Awaitable[Any]], work: Work) -> Any:
    loop.begin(work, function)
    try:
        if await _in_time(loop, work):
            return work.result()
        loop.cancel(work)
        while not await work.ends_within(work.seconds + author_loops.GRACE) and loop.is_held_by(work):
            await asyncio.wait([work.ended], timeout=author_loops.GRACE)
        raise _overdue(work)
    except asyncio.CancelledError:
        loop.cancel(work)
        await asyncio.wait([work.ended], timeout=author_loops.GRACE)
        raise


async def _in_time(loop: author_loops.Loop, work: Work) -> bool:
    """Whether a call ended in its own time."""
    while not await work.ends_within(work.seconds):
        if loop.is_held_by_another(work):
            await asyncio.wait([work.ended], timeout=2 * author_loops.TICK)
        if work.spent >= work.seconds:
            return work.ended.done()
    return True


async def in_thread(function: Callable[[], Any], seconds: float, what: str) -> Any:
    """The result of `function()` in a thread of its own; raises what `call` does."""
    # asyncio.to_thread has too few threads for a shard of slow tools, and the end of the loop waits for hung ones.
    work = Work(what, seconds)

    def run() -> None:
        work.settle(_outcome(function))

    work.begin()
    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    if await work.ends_within(seconds):
        return work.result()
    raise _overdue(work)


def _outcome(function: Callable[[], Any]) -> Outcome:
    try:
        return function(), None
    except BaseException as error:  # no Ctrl-C comes to this thread: whatever it is, the function raised it
        return None, harmless(error)


def _overdue(work: Work) -> Overdue:
    """What to say of a call that has had its time: whatever came of it later is not looked at."""
    if work.ended.done() and isinstance(error := work.ended.result()[1], Overdue):
        return error  # it held the loop
    return Overdue(f"no result within {work.seconds:g} s")
