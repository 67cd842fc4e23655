"""The environments' event loop, in a background thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from agentfly_core.authoring.environment import Environment
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.system import background_loop

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class EnvironmentLoop:
    """A ResourceManager, and the event loop in a thread of its own to which it belongs.

        with environment_loop({Shop: Limit(8)}) as loop:
            played, timings, metrics = loop.run(
                collect(episode_specs, rules, sampler, watch, loop.resources)
            )

    Between calls of `run` environments are started and replaced. `turn` is held while a shard is
    played, because the sampler is loaded for one shard at a time.
    """

    resources: ResourceManager
    loop: asyncio.AbstractEventLoop
    turn: threading.Lock = field(default_factory=threading.Lock)

    def run(self, work: Coroutine[None, None, R]) -> R:
        """Run `work` on the loop in this thread's context; an interrupt cancels it and waits."""
        tasks: list[asyncio.Task[R]] = []
        try:
            self.loop.call_soon_threadsafe(lambda: tasks.append(self.loop.create_task(work)))
            return asyncio.run_coroutine_threadsafe(_result(tasks), self.loop).result()
        except BaseException:  # also Ctrl-C and the end that Prefect asks for: it passes on
            asyncio.run_coroutine_threadsafe(_end(tasks), self.loop).result()
            raise


@contextmanager
def environment_loop(limits: Mapping[type[Environment], Limit | int]) -> Iterator[EnvironmentLoop]:
    """An EnvironmentLoop whose environments close with the block; raises as ResourceManager."""
    loop, thread = background_loop.started("environments")
    try:
        here = EnvironmentLoop(ResourceManager(limits), loop)
        here.run(here.resources.__aenter__())
        try:
            yield here
        finally:
            here.run(here.resources.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _result(tasks: Sequence[asyncio.Task[R]]) -> R:
    return await tasks[0]


async def _end(tasks: Sequence[asyncio.Task[R]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
