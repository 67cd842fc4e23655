"""Environments lent to episodes, one at a time each, never dirty, and all of them closed at the end."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar, cast

from agentfly_core import calling
from agentfly_core.environment import Environment, ServiceFailure
from agentfly_core.plaintext import fault
from agentfly_core.record import Problem

E = TypeVar("E", bound=Environment)
CLOSE_SECONDS = 30.0
COUNTS = ("started", "closed", "resets_failed", "closes_failed", "most_in_use", "most_waiting")
_log = logging.getLogger(__name__)


class LeaseTimeout(ServiceFailure):
    """No environment became free in time: "Shop: none of 8 became free within 60 s, 3 others are waiting"."""


class ResourceManager:
    """Lends environments of several kinds, at most `limits[kind]` of each at a time; belongs to one event loop.

        async with ResourceManager({Shop: 8}) as resources:
            async with resources.lease(Shop, problem, timeout=60) as shop:
                ...

    Leaving it closes every environment; raises RuntimeError that names what was started and not closed.
    """

    def __init__(self, limits: Mapping[type[Environment], int]) -> None:
        self._pools = {kind: _Pool(kind, limit) for kind, limit in limits.items()}

    async def __aenter__(self) -> ResourceManager:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def lease(self, kind: type[E], problem: Problem, timeout: float) -> AsyncIterator[E]:  # noqa: ASYNC109
        """An environment that was reset for `problem`, for the block's duration; it is lent again only if healthy.

        Waiting for one, starting it and resetting it may take `timeout` seconds each, first come, first served. When
        the block raises, the environment is closed. Raises LeaseTimeout, ServiceFailure when it cannot be made ready,
        and ValueError for a kind without a limit.
        """
        if kind not in self._pools:
            raise ValueError(f"There is no limit for {kind.__name__}; give one under `environments`.")
        async with self._pools[kind].lend(problem, timeout) as environment:
            yield cast(E, environment)

    async def close(self) -> None:
        """Close every environment; raises RuntimeError for a lease that has not ended."""
        ends = await asyncio.gather(*(pool.close() for pool in self._pools.values()), return_exceptions=True)
        for leak in filter(None, ends):
            raise leak

    def metrics(self) -> dict[str, float]:
        """Counts, and seconds of waiting, by kind: `{"resources/Shop/in_use": 3, "resources/Shop/wait_p95": 0.2}`.

        `most_in_use` and `most_waiting` are the most there were at a time.
        """
        pools = {kind.__name__: pool.metrics() for kind, pool in self._pools.items()}
        return {f"resources/{kind}/{name}": value for kind, found in pools.items() for name, value in found.items()}


class _Pool:
    """The environments of one kind. A slot of `_free` is held from before the start until after the close or return."""

    def __init__(self, kind: type[Environment], limit: int) -> None:
        self._kind, self._limit = kind, limit
        self._free = asyncio.Semaphore(limit)
        self._idle: list[Environment] = []
        self._lent: dict[int, Problem] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._count: Counter[str] = Counter()
        self._waiting = 0
        self._waits: list[float] = []

    @asynccontextmanager
    async def lend(self, problem: Problem, seconds: float) -> AsyncIterator[Environment]:
        await self._wait(seconds)
        getting = asyncio.create_task(self._ready(problem, seconds))
        try:
            environment = await asyncio.shield(getting)
        except BaseException:
            self._go_on(self._abandon(getting))
            raise
        keep = False
        try:
            yield environment
            keep = True
        finally:
            await asyncio.shield(self._go_on(self._give_back(environment, keep)))

    async def close(self) -> None:
        while self._background:
            await asyncio.wait(self._background)
        while self._idle:
            await self._end(self._idle.pop())
        if self._count["started"] != self._count["closed"]:
            holders = ", ".join(sorted(problem.id for problem in self._lent.values()))
            raise RuntimeError(
                f"{self._kind.__name__}: {self._count['started']} were started and {self._count['closed']} closed; "
                f"still lent to the problems: {holders}."
            )

    def metrics(self) -> dict[str, float]:
        waits = sorted(self._waits) or [0.0]
        counts = {name: self._count[name] for name in COUNTS}
        middle, slow = waits[len(waits) // 2], waits[int(len(waits) * 0.95)]
        return {"in_use": len(self._lent), "waiting": self._waiting, **counts, "wait_p50": middle, "wait_p95": slow}

    async def _wait(self, seconds: float) -> None:
        start = time.monotonic()
        self._waiting += 1
        if self._free.locked():
            self._most("waiting", self._waiting)
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError:
            raise LeaseTimeout(
                f"{self._kind.__name__}: none of {self._limit} became free within {seconds:g} s, "
                f"{self._waiting - 1} others are waiting. Raise its limit under `environments`."
            ) from None
        finally:
            self._waiting -= 1
            self._waits.append(time.monotonic() - start)

    async def _ready(self, problem: Problem, seconds: float) -> Environment:
        while self._idle:
            environment = self._idle.pop()
            if (wrong := await _tried(functools.partial(environment.reset, problem), seconds)) is None:
                return self._lend_out(environment, problem)
            _log.warning("%s could not be reset and is replaced: %s", self._kind.__name__, wrong)
            self._count["resets_failed"] += 1
            await self._end(environment)
        return self._lend_out(await self._new(problem, seconds), problem)

    async def _new(self, problem: Problem, seconds: float) -> Environment:
        environment = self._kind()
        self._count["started"] += 1
        for prepare in (environment.start, functools.partial(environment.reset, problem)):
            if (wrong := await _tried(prepare, seconds)) is not None:
                await self._end(environment)
                raise ServiceFailure(f"{self._kind.__name__} is not ready for problem {problem.id!r}: {wrong}")
        return environment

    def _lend_out(self, environment: Environment, problem: Problem) -> Environment:
        self._lent[id(environment)] = problem
        self._most("in_use", len(self._lent))
        return environment

    def _most(self, what: str, now: int) -> None:
        self._count[f"most_{what}"] = max(self._count[f"most_{what}"], now)

    async def _abandon(self, getting: asyncio.Task[Environment]) -> None:
        (environment,) = await asyncio.gather(getting, return_exceptions=True)
        if isinstance(environment, Environment):
            await self._give_back(environment, keep=False)
        else:
            self._free.release()

    async def _give_back(self, environment: Environment, keep: bool) -> None:
        try:
            if keep and not environment.spoilt and await _is_healthy(environment):
                self._idle.append(environment)
            else:
                await self._end(environment)
        finally:
            del self._lent[id(environment)]
            self._free.release()

    async def _end(self, environment: Environment) -> None:
        if (wrong := await _tried(environment.close, CLOSE_SECONDS)) is not None:
            _log.warning("%s was not closed well: %s", self._kind.__name__, wrong)
            self._count["closes_failed"] += 1
        self._count["closed"] += 1

    def _go_on(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it whatever becomes of the caller."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _tried(work: Callable[[], Any], seconds: float) -> str | None:
    """What went wrong, or None."""
    try:
        await calling.call(work, {}, seconds)
    except Exception as error:  # whatever an environment raises, it is closed and never lent again
        return fault(error)
    return None


async def _is_healthy(environment: Environment) -> bool:
    try:
        return bool(await calling.call(environment.healthy, {}, CLOSE_SECONDS))
    except Exception as error:  # as above
        _log.warning("%s could not say whether it is healthy: %s", type(environment).__name__, fault(error))
        return False
