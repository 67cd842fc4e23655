"""Leases of environments: reset for each episode, and closed at the end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType

from agentfly_core.authoring.environment import Environment, ServiceFailure, in_order
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout import child_process
from agentfly_core.rollout.pool import Limit, Pool

LentEnvironments = dict[type[Environment], Environment]


class LeaseExpired(ServiceFailure):
    """Environments were held too long: "no ending within 3600 s, the agent's deadline"."""


class ResourceManager:
    """Leases environments of several kinds, at most `limits[kind]` of each; used on one event loop.

        async with ResourceManager({Shop: Limit(8, max_uses=100)}) as resources:
            resources.warm([Shop], 8, timeout=60)
            async with resources.leases([Shop], problem, timeout=60) as lent:
                shop = lent[Shop]

    A number is short for its Limit. Entering it ends what dead processes left of their
    environments; leaving it closes every environment, and raises RuntimeError that names what was
    lent and not given back.
    """

    def __init__(self, limits: Mapping[type[Environment], Limit | int]) -> None:
        self._pools = {
            kind: Pool(kind, Limit(limit) if isinstance(limit, int) else limit)
            for kind, limit in limits.items()
        }

    async def __aenter__(self) -> ResourceManager:
        if self._pools:
            await asyncio.to_thread(child_process.sweep)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def warm(self, kinds: Iterable[type[Environment]], count: int, timeout: float) -> None:
        """Begin to have `count` of each kind, started all at once; each may take `timeout` seconds.

        Those that are idle are looked at, and replaced where they are worn or no longer healthy.
        What cannot be started is logged, and started again by the lease that needs it.
        """
        for kind in kinds:
            self._pool(kind).warm(count, timeout)

    @asynccontextmanager
    async def leases(
        self,
        kinds: Iterable[type[Environment]],
        problem: Problem,
        timeout: float,  # noqa: ASYNC109
        deadline: float = math.inf,
    ) -> AsyncIterator[LentEnvironments]:
        """An environment of each kind that was reset for `problem`, for the block's duration.

        They are leased in a fixed order, so that no two episodes wait for each other. Waiting for
        one, starting it and resetting it may take `timeout` seconds each, first come, first served.
        Each is lent again only if it is healthy after a block that did not raise; else it is
        closed. `deadline` seconds after the last one was lent the block is cancelled and all are
        closed, whether it ends or not.

        Raises LeaseTimeout, LeaseExpired, ServiceFailure when one cannot be made ready, and
        ValueError for a kind without a limit.
        """
        pools = {kind: self._pool(kind) for kind in in_order(kinds)}
        async with AsyncExitStack() as stack:
            lent = {
                kind: await stack.enter_async_context(pool.lend(problem, timeout))
                for kind, pool in pools.items()
            }

            def expire() -> None:
                for kind, pool in pools.items():
                    pool.expire(lent[kind])

            # the block may not listen to being cancelled: then the leases are over all the same
            timer = asyncio.get_running_loop().call_later(deadline, expire)
            try:
                async with asyncio.timeout(deadline) as limit:
                    yield lent
            except TimeoutError:
                if not limit.expired():
                    raise
                expired = f"no ending within {deadline:g} s, the agent's deadline"
                raise LeaseExpired(expired) from None
            finally:
                timer.cancel()

    async def close(self) -> None:
        """Close all, also those that only start; raises RuntimeError for a lease not yet ended."""
        ends = await asyncio.gather(
            *(pool.close() for pool in self._pools.values()), return_exceptions=True
        )
        for leak in filter(None, ends):
            raise leak

    def metrics(self) -> dict[str, float]:
        """Counts, and seconds of waiting, by kind:
        `{"resources/Shop/in_use": 3, "resources/Shop/wait_p95": 0.2}`.

        They are of the time since this was asked last; `in_use` and `waiting` are of now.
        `most_in_use` and `most_waiting` are the most there were at a time, `expired` the leases
        that their deadline ended.
        """
        return {
            f"resources/{kind.__name__}/{name}": value
            for kind, pool in self._pools.items()
            for name, value in pool.metrics().items()
        }

    def _pool(self, kind: type[Environment]) -> Pool:
        if kind not in self._pools:
            raise ValueError(
                f"There is no limit for {kind.__name__}; give one under `environments`."
            )
        return self._pools[kind]
