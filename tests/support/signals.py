"""Signals between tests and user code, which runs on an event loop of its own."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from agentfly_core.authoring import author_part


class Signal:
    """Set once, and waited for on whichever event loop: `signal.set()`, `await signal.wait()`."""

    def __init__(self) -> None:
        self._given: Future[None] = Future()

    def set(self) -> None:
        if not self._given.done():
            self._given.set_result(None)

    async def wait(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self._given))


async def called(method: Callable[..., Any], *arguments: Any) -> Any:
    """Result of an environment's method, called on the event loop of the environments."""
    return await author_part.call(functools.partial(method, *arguments), 30, method.__name__)
