"""Shards that are played one after the other, each stored while the next one is played."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from threading import Event
from typing import TypeVar

from agentfly_core.artifacts.store import Artifact
from agentfly_core.pipeline.services import RolloutServices
from tasks.rollout import Begun

Services = TypeVar("Services", bound=RolloutServices)


def played_in_turn(
    services: Services, shards: Iterable[int], stage: Callable[[int, Services, Begun], Artifact]
) -> list[Artifact]:
    """What a stage publishes that plays a shard, for one shard after the other.

    The next one starts when it is the turn of the one before it, and waits for its own. Where one
    fails, or this thread is interrupted, what is being played is not played to its end.
    """
    environments = services.environments.part()
    given = replace(services, environments=environments)
    published: list[Future[Artifact]] = []

    def publish(shard: int, begun: Event) -> Artifact:
        try:
            return stage(shard, given, begun.set)
        except BaseException:  # whatever it is, it passes on
            environments.interrupt()
            raise
        finally:
            begun.set()

    with ThreadPoolExecutor(2, "shard") as threads:
        try:
            for shard in shards:
                begun = Event()
                published.append(threads.submit(copy_context().run, publish, shard, begun))
                begun.wait()
                if environments.interrupted.is_set():
                    break
            return [one.result() for one in published]
        except BaseException:  # Ctrl-C, too
            environments.interrupt()
            threads.shutdown(cancel_futures=True)
            raise
