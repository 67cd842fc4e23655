"""An event loop that runs in a background thread."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def started(name: str) -> asyncio.AbstractEventLoop:
    """Start an event loop in a daemon thread. The thread ends when the loop is stopped."""
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    runner.get_loop().set_default_executor(Threads())
    threading.Thread(target=_run, args=[runner], name=name, daemon=True).start()
    return runner.get_loop()


class Threads(ThreadPoolExecutor):
    """An executor that starts a daemon thread for each call.

    If a call hangs, other calls are not delayed, and the process can still end.
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call `fn` in a new thread, and return a future with the result."""
        done: Future[R] = Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(fn(*args, **kwargs))
                except BaseException as error:  # raised again where the result is awaited
                    done.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return done


def _run(runner: asyncio.Runner) -> None:
    with runner:
        while True:
            # a task may raise these errors, even if another task awaits it; the loop must continue
            with suppress(KeyboardInterrupt, SystemExit):
                return runner.get_loop().run_forever()
