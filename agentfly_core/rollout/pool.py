"""A pool of environments of one class.

The environments start in parallel. Each environment is leased to one episode at a time.
"""

import asyncio
import functools
import logging
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from agentfly_core.authoring import author_part, injection
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.injection import AuthorFunction
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.text import counted, fault, shown, warn_once

CLOSE_SECONDS = 30.0
COUNTS = ("started", "closed", "expired", "starts_failed", "resets_failed", "closes_failed")
_log = logging.getLogger(__name__)


class LeaseTimeout(ServiceFailure):
    """No environment became free in time.

    Example of the message: "Shop: no environment became free within 60 s. Limit: 8, ...".
    """


@dataclass(frozen=True, slots=True)
class Limit:
    """The maximum number, the lifetime and the settings of environments of one class.

        Limit(8, max_uses=100, lifetime=3600.0, settings={"products": 6})

    An environment is replaced after `max_uses` leases, and when it is older than `lifetime`
    seconds. None means no limit. `settings` are the keyword arguments of the class.
    """

    limit: int
    max_uses: int | None = None
    lifetime: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Instance:
    """A running environment, and the problem for which it is leased.

    Example: `Instance(Shop(), 8123.5, 3, problem)`. `born` is the start time of the environment, as
    a value of `time.monotonic()`. `uses` is the number of its leases, including the current lease.
    `returning` is the asyncio task that ends the current lease, or None before this task is
    started.
    """

    environment: Environment
    born: float
    uses: int = 0
    problem: Problem | None = None
    returning: asyncio.Task[None] | None = None


PoolSlot = Instance | asyncio.Task[Instance | None] | None


class Pool:
    """The running environments of one class. Their number is at most `limit.limit`.

    The pool has `limit.limit` slots. A slot is empty, or holds an instance (an environment with its
    lease) or the task that starts an instance. The list `_places` contains the slots that can be
    leased. Empty slots come first, then slots with starting instances, then slots with idle
    instances. A lease takes the last slot of the list. The semaphore `_free` counts the slots in
    the list. If the list is empty, leases wait, and get slots in the order of their requests. Slots
    of leased and closing instances are not in the list.
    """

    def __init__(self, kind: type[Environment], limit: Limit) -> None:
        self._kind, self._limit = kind, limit
        self._free = asyncio.Semaphore(limit.limit)
        self._places: deque[PoolSlot] = deque([None] * limit.limit)
        self._alive: list[Instance] = []
        self._background: set[asyncio.Task[None]] = set()
        self._count: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self._waiting = 0
        self._waits: list[float] = []

    def warm(self, count: int, seconds: float) -> None:
        """Start environments in parallel until `count` environments exist.

        `seconds` is the time limit of each start. Idle environments are replaced if they are
        unhealthy, too old or used too often.
        """
        for number, place in enumerate(self._places):
            if isinstance(place, asyncio.Task) and place.done():
                self._places[number] = place.result()
        idle = [number for number, place in enumerate(self._places) if isinstance(place, Instance)]
        empty = [number for number, place in enumerate(self._places) if place is None]
        # leased and idle environments are included in `count`
        missing = max(0, count - self._limit.limit + len(empty))
        # leases take slots from the right, so the slots with new environments must be on the right
        for number in idle + empty[::-1][:missing]:
            self._places[number] = asyncio.create_task(self._warm(self._places[number], seconds))

    @asynccontextmanager
    async def lend(self, problem: Problem, seconds: float) -> AsyncIterator[Environment]:
        """Reset an environment for `problem` and lease it; see ResourceManager.leases."""
        place = await self._take(seconds)
        # a separate task: if the episode is cancelled, a half-started environment must still be
        # closed
        getting = asyncio.create_task(self._ready(place, problem, seconds))
        try:
            instance = await asyncio.shield(getting)
        except BaseException:  # the slot must be given back also after a cancellation
            self._in_background(self._abandon(getting))
            raise
        well = False
        try:
            yield instance.environment
            well = True
        finally:
            # shielded: the deadline of an episode often comes while its environments are being
            # returned
            await asyncio.shield(self._back(instance, well))

    def expire(self, environment: Environment) -> None:
        """End the lease of an environment and close the environment, even if the episode still uses
        it.
        """
        instance = next(one for one in self._alive if one.environment is environment)
        self._count["expired"] += 1
        self._back(instance, well=False)

    async def close(self) -> None:
        """Close all environments that are not leased, including environments that are still
        starting.

        Raises RuntimeError if an environment is still leased.
        """
        warming = [place for place in self._places if isinstance(place, asyncio.Task)]
        for task in warming:
            task.cancel()
        await asyncio.gather(*warming, return_exceptions=True)
        while self._background:
            await asyncio.wait(self._background)
        for instance in [one for one in self._alive if one.problem is None]:
            await self._end(instance)
        self._places = deque([None] * len(self._places))
        if problems := [one.problem.id for one in self._alive if one.problem]:
            raise RuntimeError(
                f"{self._kind.__name__}: not all environments could be closed, because episodes "
                f"still use {counted(len(problems), 'environment')}. The problems of these "
                f"episodes: {', '.join(problems)}."
            )

    def metrics(self) -> dict[str, float]:
        """Return the metrics of this class of environments; see ResourceManager.metrics."""
        waits = sorted(self._waits) or [0.0]
        now = {"in_use": self._leased, "waiting": self._waiting}
        counts = {name: self._count[name] for name in COUNTS}
        most = {f"most_{name}": max(self._most[name], count) for name, count in now.items()}
        middle, slow = waits[len(waits) // 2], waits[int(len(waits) * 0.95)]
        # reset, because each shard of episodes has its own metrics
        self._count, self._most, self._waits = Counter(), Counter(), []
        return {**now, **counts, **most, "wait_p50": middle, "wait_p95": slow}

    @property
    def _leased(self) -> int:
        return sum(one.problem is not None for one in self._alive)

    async def _take(self, seconds: float) -> PoolSlot:
        start = time.monotonic()
        self._waiting += 1
        if self._free.locked():
            self._most["waiting"] = max(self._most["waiting"], self._waiting)
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError:
            raise LeaseTimeout(
                f"{self._kind.__name__}: no environment became free within {seconds:g} s. Limit: "
                f"{self._limit.limit}, other waiting episodes: {self._waiting - 1}. Raise the "
                "limit under `environments`."
            ) from None
        finally:
            self._waiting -= 1
            self._waits.append(time.monotonic() - start)
        return self._places.pop()

    def _put(self, instance: Instance | None) -> None:
        """Add a slot with an idle `instance` to the slots that can be leased.

        If `instance` is None, an empty slot is added. Leases prefer slots with an instance.
        """
        # Leases take slots from the right, so they get idle instances before empty slots. `_free`
        # is increased last, because a waiting lease then takes the rightmost slot at once.
        if instance is None:
            self._places.appendleft(None)
        else:
            instance.problem = None
            self._places.append(instance)
        self._free.release()

    async def _warm(self, place: PoolSlot, seconds: float) -> Instance | None:
        if (instance := await _in(place)) and await self._kept(instance):
            return instance
        try:
            return await self._started(seconds)
        except ServiceFailure:  # the next lease tries again and raises its error
            return None

    async def _ready(self, place: PoolSlot, problem: Problem, seconds: float) -> Instance:
        instance = await _in(place)
        if instance and (
            self._is_worn(instance) or await self._wrong_reset(instance, problem, seconds)
        ):
            await self._end(instance)
            instance = None
        if instance is None:
            instance = await self._started(seconds)
            # If the reset of a used instance fails, the instance is replaced once. If the reset of
            # a new instance fails, the service is broken.
            if wrong := await self._wrong_reset(instance, problem, seconds):
                await self._end(instance)
                raise ServiceFailure(
                    f"{self._kind.__name__} is not ready for problem {problem.id!r}: {wrong}"
                )
        instance.problem, instance.returning = problem, None
        instance.uses += 1
        self._most["in_use"] = max(self._most["in_use"], self._leased)
        return instance

    async def _started(self, seconds: float) -> Instance:
        try:
            environment = await author_part.made(self._kind, self._limit.settings, seconds)
        except Exception as error:  # `__init__` is an author's code and may raise any error
            wrong = self._failure(self._kind.__init__, error)
            raise ServiceFailure(f"{self._kind.__name__} could not be created: {wrong}") from None
        instance = Instance(environment, time.monotonic())
        self._alive.append(instance)
        self._count["started"] += 1
        if wrong := await self._tried(instance.environment.start, seconds):
            self._count["starts_failed"] += 1
            await self._end(instance)
            raise ServiceFailure(f"{self._kind.__name__} could not be started: {wrong}")
        return instance

    async def _wrong_reset(self, instance: Instance, problem: Problem, seconds: float) -> str:
        def keep(text: object) -> None:
            if not isinstance(text, str | None):
                raise TypeError(f"reset returned {shown(text)}, expected text or None")
            instance.environment.reset_text = text or ""

        wrong = await self._tried(instance.environment.reset, seconds, problem, keep=keep)
        self._count["resets_failed"] += bool(wrong)
        return wrong

    async def _abandon(self, getting: asyncio.Task[Instance]) -> None:
        (instance,) = await asyncio.gather(getting, return_exceptions=True)
        if isinstance(instance, Instance):
            await self._back(instance, well=False)
        else:
            self._put(None)

    def _back(self, instance: Instance, well: bool) -> asyncio.Task[None]:
        """Start a task that ends the lease of an instance, and return this task.

        If `well` is true, the instance can be leased again. Otherwise the instance is closed.
        Further calls for the same lease return the first task.
        """
        # Both the end of an episode and its deadline may return the instance. The instance must get
        # only one slot: with two slots, it would be leased to two episodes.
        if instance.returning is None:
            instance.returning = self._in_background(self._take_back(instance, well))
        return instance.returning

    async def _take_back(self, instance: Instance, well: bool) -> None:
        if not well:
            await self._end(instance)
        # The slot is freed only after the instance is closed. Otherwise more instances than the
        # limit allows could run.
        self._put(instance if well and await self._kept(instance) else None)

    async def _kept(self, instance: Instance) -> bool:
        """Return whether the instance may be leased again. If not, close the instance."""
        healthy, check = list[bool](), instance.environment.healthy
        # in a spoilt environment, a call that exceeded its time limit may still be running
        if not self._is_worn(instance) and not instance.environment.spoilt:
            await self._tried(check, CLOSE_SECONDS, keep=lambda well: healthy.append(bool(well)))
        if not any(healthy):
            await self._end(instance)
        return any(healthy)

    def _is_worn(self, instance: Instance) -> bool:
        uses = [most for most in (self._limit.max_uses, self._kind.max_uses) if most is not None]
        age, lifetime = time.monotonic() - instance.born, self._limit.lifetime
        used_up = instance.uses >= min(uses, default=math.inf)
        return used_up or (lifetime is not None and age > lifetime)

    async def _end(self, instance: Instance) -> None:
        await asyncio.shield(self._in_background(self._close(instance)))

    async def _close(self, instance: Instance) -> None:
        wrong = await self._tried(instance.environment.close, CLOSE_SECONDS)
        self._alive.remove(instance)
        self._count["closes_failed" if wrong else "closed"] += 1

    async def _tried(
        self,
        method: Callable[..., Awaitable[object]],
        seconds: float,
        *arguments: Problem,
        keep: Callable[[object], None] = lambda result: None,
    ) -> str:
        """Call a method of an environment, and return the text of an error, or "" without an error.

        The result of the method is passed to the function `keep`. Errors of `keep` are returned,
        too.
        """
        bound: Callable[[], Awaitable[object]] = functools.partial(method, *arguments)
        try:
            keep(await author_part.call(bound, seconds, self._called(method)))
        except Exception as error:  # a method is an author's code and may raise any error
            return self._failure(method, error, *arguments)
        return ""

    def _failure(self, method: AuthorFunction, error: Exception, *given: Problem) -> str:
        """Return the text of an error in an environment's method, with the line of the user's code.

        Also log the error. An error at the same line is logged only once in a process.
        """
        line = tracebacks.own_line(error)
        what = f"{self._called(method)} failed at {line or tracebacks.defined(method)}"
        first = "".join(f" (first for the problem {problem.id!r})" for problem in given)
        warn_once(_log, what, f"{fault(error)}{first}")
        return f"{fault(error)}, at {line}" if line else fault(error)

    def _called(self, method: AuthorFunction) -> str:
        return f"{self._kind.__name__}.{injection.name(method)}()"

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work` as a task that runs to its end, even if the caller is cancelled."""
        # cancelling a start or a close would leave a running process and an occupied slot
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _in(place: PoolSlot) -> Instance | None:
    """Wait until the instance of a slot has started, then return the instance.

    Returns None if the slot is empty, or if the instance could not be started.
    """
    return await place if isinstance(place, asyncio.Task) else place
