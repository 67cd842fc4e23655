"""An event loop that runs in a background thread."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def started(name: str) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Start an event loop in a daemon thread. Return the loop and the thread.

    The thread ends when the loop is stopped.
    """
    begun: Future[asyncio.AbstractEventLoop] = Future()
    thread = threading.Thread(target=_run, args=[begun], name=name, daemon=True)
    thread.start()
    return begun.result(), thread


class Mailbox:
    """Passes callbacks from other threads to an event loop.

    If several callbacks wait, the loop is woken only once, which saves time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._turn = loop, threading.Lock()
        self._posted: list[tuple[Context, Callable[[], None]]] = []

    def post(self, callback: Callable[[], None], context: Context | None = None) -> None:
        """Let the loop run a callback, after all callbacks that were posted before.

        The callback runs in the `contextvars` context `context`, or if it is None, in a copy of the
        caller's context. Raises RuntimeError if the loop is closed.
        """
        if self._loop.is_closed():
            raise RuntimeError("The event loop is closed.")
        with self._turn:
            self._posted.append((context or copy_context(), callback))
            # waking the loop is a write to its pipe; for thousands of callbacks, one write is
            # enough
            first = len(self._posted) == 1
        if first:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._turn:
            # emptied under the lock, so a callback that is posted later wakes the loop again
            posted, self._posted = self._posted, []
        for context, callback in posted:
            self._loop.call_soon(callback, context=context)


def mailbox(loop: asyncio.AbstractEventLoop) -> Mailbox:
    """Return the mailbox of an event loop. Each loop has only one mailbox."""
    # an attribute of the loop, because `setdefault` is atomic
    box: Mailbox = vars(loop).setdefault("agentfly_mailbox", Mailbox(loop))
    return box


class Threads(ThreadPoolExecutor):
    """An executor that starts a daemon thread for each call.

    A call that hangs therefore neither delays other calls nor keeps the process from ending.
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call in a new thread, as `Executor.submit` does."""
        done: Future[R] = Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(fn(*args, **kwargs))
                except BaseException as error:  # raised again where the result is awaited
                    done.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return done


def _run(begun: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.set_default_executor(Threads())
        begun.set_result(loop)
        while True:
            # a task may raise these errors, even if another task awaits it; the loop must continue
            with suppress(KeyboardInterrupt, SystemExit):
                return loop.run_forever()
