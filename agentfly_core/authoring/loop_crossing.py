"""The way back from an author's event loop to ours."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from agentfly_core.authoring import author_loops

R = TypeVar("R")


class LoopCrossing:
    """Does what is asked for on another loop on the one where it was made, until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._doing: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def do(self, work: Coroutine[None, None, R], refusal: Exception) -> R:
        """What `work` returns or raises; it is cancelled with its asker.

        Raises `refusal` when this is closed, and to an asker whose own time is over.
        """
        asker = author_loops.calling_work.get()
        done = self._done(work, refusal, over=asker is not None and asker.overdue >= 0)
        try:
            future = asyncio.run_coroutine_threadsafe(done, self._loop)
        except RuntimeError:  # the loop was closed meanwhile
            done.close()
            work.close()
            raise refusal from None
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Refuse what is asked from now on, and end what is being done."""
        self._closed = True
        for task in self._doing:
            task.cancel()
        await asyncio.gather(*self._doing, return_exceptions=True)

    async def _done(self, work: Coroutine[None, None, R], refusal: Exception, over: bool) -> R:
        if self._closed or over:
            work.close()
            raise refusal
        task = asyncio.current_task()
        assert task is not None
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)
        return await work
