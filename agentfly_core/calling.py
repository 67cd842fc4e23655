"""Calling what an author wrote: whatever it does, it neither blocks other episodes nor takes the loop down with it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from agentfly_core.environment import Environment
from agentfly_core.plaintext import fault, shown


class Overdue(Exception):
    """A function gave no result in time: `Overdue("no result within 30 s")`."""


async def call(function: Callable[..., Any], arguments: Mapping[str, Any], seconds: float) -> Any:
    """The result of `function(**arguments)`; a synchronous one runs in a thread of its own.

    Raises Overdue after `seconds`, and then marks the environments among the arguments as spoilt: a thread cannot be
    ended, and a cancelled coroutine may leave half a message behind. Whatever else the function raises arrives as an
    Exception, also what would end the program (`sys.exit` in model-written code).
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await _result(function, arguments)
    except TimeoutError:
        if not limit.expired():
            raise
        for value in arguments.values():
            if isinstance(value, Environment):
                value.spoilt = True
        raise Overdue(f"no result within {seconds:g} s") from None
    except asyncio.CancelledError as error:
        if _cancelled_by_us():
            raise
        raise RuntimeError("it was cancelled from within") from error
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # sys.exit in what an author wrote
        raise _harmless(error) from error


def nothing_needed() -> None:
    """The `ready` of what works on every machine."""


async def _result(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(**arguments)
    result = await _in_thread(functools.partial(function, **arguments))
    return await result if inspect.isawaitable(result) else result


async def _in_thread(function: Callable[[], Any]) -> Any:
    # asyncio.to_thread has too few threads for a shard of slow tools, and the end of the loop waits for hung ones.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, Exception | None]] = loop.create_future()

    def settle(outcome: tuple[Any, Exception | None]) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        outcome = _outcome(function)
        with contextlib.suppress(RuntimeError):  # the loop was closed while this thread hung
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    result, error = await done
    if error is not None:
        raise error
    return result


def _outcome(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return function(), None
    except Exception as error:  # raised again by who waits for it
        return None, error
    except BaseException as error:  # no Ctrl-C comes to this thread: whatever it is, the function raised it
        return None, _harmless(error)


def _harmless(error: BaseException) -> RuntimeError:
    """What would end the program, as an Exception."""
    return RuntimeError(f"it called exit({shown(error.code)})" if isinstance(error, SystemExit) else fault(error))


def _cancelled_by_us() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
