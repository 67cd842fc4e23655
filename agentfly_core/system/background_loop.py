"""An event loop that goes on in a thread of its own, whoever waits for it or not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def started(name: str) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """A new event loop and its thread, which ends when the loop is stopped, and keeps no program from ending."""
    begun: Future[asyncio.AbstractEventLoop] = Future()
    thread = threading.Thread(target=_go_on, args=[begun], name=name, daemon=True)
    thread.start()
    return begun.result(), thread


class Threads(ThreadPoolExecutor):
    """A thread for each call, where a loop has a few for all: a call that hangs takes no other's place.

    Nor does it keep the program from ending, for which a ThreadPoolExecutor waits.
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """As any executor's."""
        done: Future[R] = Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(fn(*args, **kwargs))
                except BaseException as error:  # raised again by who waits for it
                    done.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return done


def _go_on(begun: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.set_default_executor(Threads())
        begun.set_result(loop)
        while True:
            with suppress(KeyboardInterrupt, SystemExit):  # of a task, whoever waits for it; it must not end the others
                return loop.run_forever()
