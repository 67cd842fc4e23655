"""An event loop that runs in a background thread."""

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
    """Start an event loop in a daemon thread, which ends when the loop is stopped."""
    begun: Future[asyncio.AbstractEventLoop] = Future()
    thread = threading.Thread(target=_run, args=[begun], name=name, daemon=True)
    thread.start()
    return begun.result(), thread


class Threads(ThreadPoolExecutor):
    """An executor with a thread for each call, so that a call that hangs blocks no other.

    Nor does it keep the program from ending, for which a ThreadPoolExecutor waits.
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call in a new thread, as `Executor.submit` does."""
        done: Future[R] = Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(fn(*args, **kwargs))
                except BaseException as error:  # raised again by who waits for it
                    done.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return done


def _run(begun: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.set_default_executor(Threads())
        begun.set_result(loop)
        while True:
            # raised by a task, also one that is awaited; it must not end the others
            with suppress(KeyboardInterrupt, SystemExit):
                return loop.run_forever()
