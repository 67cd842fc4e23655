"""Calls from an author's event loop into the pipeline's."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from agentfly_core.authoring import author_loops
from agentfly_core.system.background_loop import mailbox

R = TypeVar("R")


class LoopCrossing:
    """Does what is asked for on another loop on the one where it was made, until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._doing: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def do(self, work: Coroutine[None, None, R], refusal: Exception) -> R:
        """Run `work`, cancelled with its caller; raises `refusal` if closed or overdue."""
        asker = author_loops.calling_work.get()
        over = asker is not None and asker.overdue >= 0
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        tasks: list[asyncio.Task[R]] = []

        def start() -> None:
            task = self._loop.create_task(self._done(work, refusal, over))
            tasks.append(task)
            task.add_done_callback(lambda _: work.close())  # cancelled before its first line
            task.add_done_callback(functools.partial(_tell, answer))

        try:
            mailbox(self._loop).post(start)
        except RuntimeError:  # the loop was closed meanwhile
            work.close()
            raise refusal from None
        try:
            return await answer
        except asyncio.CancelledError:
            with suppress(RuntimeError):
                mailbox(self._loop).post(functools.partial(_cancel, tasks))
            raise

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


def _tell(answer: asyncio.Future[R], task: asyncio.Task[R]) -> None:
    with suppress(RuntimeError):  # the asker's loop was closed meanwhile
        mailbox(answer.get_loop()).post(functools.partial(_settle, answer, task))


def _settle(answer: asyncio.Future[R], task: asyncio.Task[R]) -> None:
    if answer.done():
        return
    if task.cancelled():
        answer.cancel()
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


def _cancel(tasks: list[asyncio.Task[R]]) -> None:
    for task in tasks:
        task.cancel()
