"""Lease environments to episodes, at most a fixed number of each class at a time.

An environment is reset for each episode. All environments are closed at the end.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType

from agentfly_core.authoring.author_part import kinds_needed
from agentfly_core.authoring.environment import Environment, ServiceFailure, in_order
from agentfly_core.authoring.event_loop import LoopHeld, run
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout import child_process
from agentfly_core.rollout.pool import Limit, Pool

LentEnvironments = dict[type[Environment], Environment]


class LeaseExpired(ServiceFailure):
    """An episode exceeded its deadline.

    Example of the message: "the agent did not end within its deadline of 3600 s".
    """


class ResourceManager:
    """Leases environments of several classes to episodes, at most `limits[kind]` of each class.

        async with ResourceManager({Shop: Limit(8, max_uses=100)}) as resources:
            await resources.warm([Shop], 8, seconds=60)
            async with resources.leases([Shop], problem, timeout=60) as lent:
                shop = lent[Shop]

    An integer `n` in `limits` means `Limit(n)`. All methods run on one event loop. When the
    outer `with` block begins, child processes that a killed run has left behind are killed. When
    the outer `with` block ends, all environments are closed. If an environment is then still
    leased, RuntimeError is raised.
    """

    def __init__(self, limits: Mapping[type[Environment], Limit | int]) -> None:
        self._pools = {
            kind: Pool(kind, Limit(limit) if isinstance(limit, int) else limit)
            for kind, limit in limits.items()
        }

    async def __aenter__(self) -> ResourceManager:
        if self._pools:
            # children of a killed run may still hold ports and files that new environments need
            await asyncio.to_thread(child_process.sweep)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def warm(self, kinds: Iterable[type[Environment]], count: int, seconds: float) -> None:
        """Start environments in the background until `count` of each class exist.

        Each start may take `seconds`. Idle environments are replaced if they are unhealthy, too old
        or used too often. A failed start is only logged. The next lease starts an environment
        again, and raises an error if this start fails, too.
        """
        for kind in kinds:
            self._pools[kind].warm(count, seconds)

    @asynccontextmanager
    async def leases(
        self,
        kinds: Iterable[type[Environment]],
        problem: Problem,
        timeout: float,  # noqa: ASYNC109
        deadline: float = math.inf,
    ) -> AsyncIterator[LentEnvironments]:
        """Lease one environment of each class for the duration of the `with` block.

        Each environment is first reset for `problem`. Classes are leased in a fixed order, which
        avoids deadlocks. Waiting for an environment, starting it and resetting it may take
        `timeout` seconds each. After the block, environments that are unhealthy or raised an error
        are closed. After `deadline` seconds, the block is cancelled and its environments are
        closed.

        Raises

        - LeaseTimeout if no environment becomes free in time
        - LeaseExpired after the deadline
        - ServiceFailure if an environment fails
        """
        pools = {kind: self._pools[kind] for kind in in_order(kinds)}
        async with AsyncExitStack() as stack:
            lent = {
                kind: await stack.enter_async_context(pool.lend(problem, timeout))
                for kind, pool in pools.items()
            }

            def expire() -> None:
                for kind, pool in pools.items():
                    pool.expire(lent[kind])

            # code in the block may ignore its cancellation; the leases end anyway
            timer = asyncio.get_running_loop().call_later(deadline, expire)
            try:
                async with asyncio.timeout(deadline) as limit:
                    yield lent
            except TimeoutError:
                if not limit.expired():
                    raise
                expired = f"the agent did not end within its deadline of {deadline:g} s"
                raise LeaseExpired(expired) from None
            finally:
                timer.cancel()

    async def close(self) -> None:
        """Close all environments, including environments that are still starting.

        If an environment is still leased, all others are closed, and then RuntimeError is raised.
        """
        ends = await asyncio.gather(
            *(pool.close() for pool in self._pools.values()), return_exceptions=True
        )
        # raised after all pools are closed: a leaked environment must not leave other environments
        # open
        for leak in filter(None, ends):
            raise leak

    def metrics(self) -> dict[str, float]:
        """Return counts, and waiting times in seconds, of each class of environments.

        Example: `{"resources/Shop/in_use": 3, "resources/Shop/wait_p95": 0.2}`. `in_use` and
        `waiting` are current values. All other metrics cover the time since the previous call of
        `metrics`. For example, `most_in_use` is the maximum of `in_use`, and `expired` counts the
        leases that a deadline ended.
        """
        return {
            f"resources/{kind.__name__}/{name}": value
            for kind, pool in self._pools.items()
            for name, value in pool.metrics().items()
        }


@contextmanager
def resources_for(limits: Mapping[type[Environment], Limit | int]) -> Iterator[ResourceManager]:
    """Yield a ResourceManager on the event loop that runs agents and tools, see `event_loop.run`.

        with resources_for({Shop: Limit(8)}) as resources:
            played, timings, metrics = run(collect(specs, rules, sampler, watch, resources))

    All batches of episodes that are played in the `with` block reuse the same environments. The
    environments are closed at the end of this block.
    """
    resources = ResourceManager(limits)
    run(resources.__aenter__())
    try:
        yield resources
    except LoopHeld:  # the event loop is blocked, so the environments cannot be closed
        raise
    except BaseException:  # the error of the block is raised again
        run(resources.close())
        raise
    run(resources.close())


def refuse_misfits(
    tools: Sequence[Tool], rewards: Sequence[Reward], limits: Mapping[type[Environment], Limit]
) -> None:
    """Raise ValueError if two tools or two rewards share a name.

    Also raise ValueError if `limits` lacks an environment class that a tool or a reward needs.
    """
    called = [("tool", tool.schema.name) for tool in tools]
    called += [("reward", reward.name) for reward in rewards]
    for (what, name), count in Counter(called).items():
        if count > 1:
            raise ValueError(
                f"{count} {what}s have the name {name!r}. Rename all but one: `@{what}(name=...)`."
            )
    for part in (*tools, *rewards):
        for kind in kinds_needed([part]):
            if kind not in limits:
                path = f"{kind.__module__}:{kind.__qualname__}"
                raise ValueError(
                    f"{part.what} needs a {kind.__name__}, but `environments` has no limit for "
                    f"this class. Set a limit, for example `environments: {{{path}: 8}}`."
                )
