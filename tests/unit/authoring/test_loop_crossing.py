"""Calls from an author's event loop into the pipeline's."""

import asyncio
import inspect
import threading
from contextlib import suppress

from agentfly_core.authoring.loop_crossing import LoopCrossing


async def asked_and_cancelled(crossing, work):
    asking = asyncio.create_task(crossing.do(work, RuntimeError("closed")))
    await asyncio.sleep(0)
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking


async def test_work_that_is_cancelled_before_it_starts_is_closed():
    crossing, work = LoopCrossing(), asyncio.sleep(0)
    asker = threading.Thread(target=asyncio.run, args=[asked_and_cancelled(crossing, work)])
    asker.start()
    asker.join()  # it has asked and cancelled before this loop runs again
    for _ in range(9):
        await asyncio.sleep(0)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
