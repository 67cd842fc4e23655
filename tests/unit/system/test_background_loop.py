"""Callbacks that threads post to an event loop."""

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import uvloop

from agentfly_core.system.background_loop import mailbox, started
from tests.support.waiting import LIMIT

where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own."""
    loop, thread = started("test")
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_callbacks_run_once_and_in_the_order_of_each_thread(
    loop: asyncio.AbstractEventLoop,
) -> None:
    ran: list[tuple[int, int]] = []

    def post(thread: int) -> None:
        for number in range(500):
            mailbox(loop).post(partial(ran.append, (thread, number)))

    threads = [threading.Thread(target=post, args=[thread]) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over = threading.Event()
    mailbox(loop).post(over.set)
    assert over.wait(LIMIT)
    for thread in range(4):
        assert [number for who, number in ran if who == thread] == list(range(500))


def test_a_callback_runs_in_the_given_or_the_posting_context(
    loop: asyncio.AbstractEventLoop,
) -> None:
    seen: list[str] = []
    other = contextvars.copy_context()
    other.run(where.set, "elsewhere")
    where.set("here")
    mailbox(loop).post(lambda: seen.append(where.get()))
    mailbox(loop).post(lambda: seen.append(where.get()), other)
    over = threading.Event()
    mailbox(loop).post(over.set)
    assert over.wait(LIMIT)
    assert seen == ["here", "elsewhere"]


def test_a_failing_callback_does_not_stop_the_others(loop: asyncio.AbstractEventLoop) -> None:
    handled: list[object] = []
    loop.set_exception_handler(lambda _, experiment: handled.append(experiment["exception"]))
    over = threading.Event()
    error = ValueError("no")

    def fails() -> None:
        raise error

    mailbox(loop).post(fails)
    mailbox(loop).post(over.set)
    assert over.wait(LIMIT)
    assert handled == [error]


def test_a_closed_loop_takes_no_callbacks() -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    with pytest.raises(RuntimeError, match="closed"):
        mailbox(closed).post(lambda: None)


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_closed_loop_frees_its_mailbox_and_its_letters(
    make: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    loop = make()
    assert mailbox(loop) is mailbox(loop)
    mailbox(loop).post(partial(loop.create_future))  # never run
    gone = weakref.ref(mailbox(loop))
    loop.close()
    del loop
    gc.collect()
    assert gone() is None
