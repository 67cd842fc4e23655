import asyncio
import contextvars
import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agentfly_core.authoring import author_part
from agentfly_core.authoring.author_part import Overdue
from agentfly_core.authoring.environment import Environment
from tests.support.signals import Signal
from tests.support.waiting import LIMIT


async def call(function: Callable[..., Any], arguments: Mapping[str, Any], seconds: float) -> Any:
    lent = [value for value in arguments.values() if isinstance(value, Environment)]
    return await author_part.call(
        functools.partial(function, **arguments), seconds, "The tool 'search'", lent
    )


async def test_a_synchronous_function_does_not_block_the_loop() -> None:
    opened = threading.Event()
    waiting = asyncio.create_task(call(lambda: opened.wait(LIMIT), {}, LIMIT))

    async def opens() -> None:
        opened.set()

    await call(opens, {}, LIMIT)  # could not run if the first one held the loop
    assert await waiting is True


async def test_a_hundred_synchronous_functions_wait_at_the_same_time() -> None:
    everybody = threading.Barrier(100, timeout=LIMIT)  # opens only when 100 threads stand at it
    await asyncio.gather(*(call(everybody.wait, {}, LIMIT) for _ in range(100)))
    assert not everybody.broken


class Panic(BaseException):
    """The error type of a Rust extension."""


async def test_what_would_end_the_program_arrives_as_an_exception() -> None:
    def panics() -> None:
        raise Panic("index out of bounds")

    async def panics_too() -> None:
        raise Panic("index out of bounds")

    def interrupts() -> None:
        raise KeyboardInterrupt

    for function, told in (
        (panics, "Panic: index"),
        (panics_too, "Panic: index"),
        (interrupts, "KeyboardInterrupt"),
    ):
        with pytest.raises(RuntimeError, match=told):
            await call(function, {}, LIMIT)


async def test_a_hanging_function_is_overdue_and_the_loop_can_end() -> None:
    opened = threading.Event()
    with pytest.raises(Overdue, match=r"no result within 0\.01 s"):
        await call(lambda: opened.wait(LIMIT), {}, 0.01)
    opened.set()


def test_a_function_that_hangs_forever_lets_the_program_end() -> None:
    program = """
import asyncio, threading
from agentfly_core.authoring.author_part import Overdue, call
try:
    asyncio.run(call(threading.Event().wait, 0.01, "wait"))
except Overdue:
    print("overdue")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert done.stdout == "overdue\n"


async def test_an_environment_in_the_hands_of_an_overdue_function_is_spoilt() -> None:
    environment, other = Environment(), Environment()
    opened = threading.Event()

    def hang(place: Environment) -> None:
        opened.wait(LIMIT)

    with pytest.raises(Overdue):
        await call(hang, {"place": environment}, 0.01)
    opened.set()
    assert environment.spoilt
    assert not other.spoilt


async def test_a_functions_own_timeout_error_is_not_taken_for_ours() -> None:
    def refuses() -> None:
        raise TimeoutError("the site did not answer")

    with pytest.raises(TimeoutError, match="did not answer"):
        await call(refuses, {}, LIMIT)


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyError("x"), RecursionError()])
async def test_whatever_a_function_raises_arrives_as_an_exception(error: BaseException) -> None:
    def fails() -> None:
        raise error

    async def fails_later() -> None:
        raise error

    for function in (fails, fails_later):
        with pytest.raises(
            Exception, match=r"x|exit|StopIteration|^$"
        ):  # neither a hang nor the end of the program
            await call(function, {}, LIMIT)


async def test_a_function_that_cancels_itself_is_an_error_to_its_caller() -> None:
    async def cancels() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled its own task"):
        await call(cancels, {}, LIMIT)


async def test_a_caller_who_is_cancelled_stays_cancelled() -> None:
    started = Signal()

    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(call(waits, {}, LIMIT))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_coroutine_of_a_synchronous_function_has_its_context() -> None:
    language: contextvars.ContextVar[str] = contextvars.ContextVar("language")
    language.set("fr")

    async def later() -> str:
        return language.get()

    assert await call(lambda: later(), {}, LIMIT) == "fr"
    assert await call(language.get, {}, LIMIT) == "fr"


def test_a_new_event_loop_calls_as_well_as_the_first() -> None:
    for _ in range(2):
        assert asyncio.run(call(sys.getrecursionlimit, {}, LIMIT)) == sys.getrecursionlimit()
