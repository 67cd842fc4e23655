"""A watch over the parts of `Episode.gather`: parts that wait for each other fail their episode."""

import asyncio
import asyncio.locks
import asyncio.queues
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CoroutineType
from typing import Any, TypeAlias

from agentfly_core.authoring.author_call import Steps
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.rollout.timeline import EpisodeBranch
from agentfly_core.system.formats.tracebacks import INSTALLED

SECONDS = 60.0
LOOKS = 4
PRIMITIVES = {asyncio.locks.__file__, asyncio.queues.__file__}
Chain: TypeAlias = "Sequence[CoroutineType[Any, Any, Any]]"


@dataclass
class Parts:
    """Open parts of an agent by branch, with their replies and calls in progress.

    A held reply begins only when every open part has a request.
    """

    failure: ServiceFailure | None = None
    _tasks: dict[EpisodeBranch, asyncio.Task[Any]] = field(default_factory=dict)
    _asking: Counter[EpisodeBranch] = field(default_factory=Counter)
    _held: Counter[EpisodeBranch] = field(default_factory=Counter)
    _changes: int = 0

    @contextmanager
    def asking(self, branch: EpisodeBranch, held: bool) -> Iterator[None]:
        """Count a reply or a call of a part for the time of the block."""
        self._count(branch, held, 1)
        try:
            yield
        finally:
            self._count(branch, held, -1)

    @contextmanager
    def running(
        self, parent: EpisodeBranch, tasks: Mapping[EpisodeBranch, asyncio.Task[Any]]
    ) -> Iterator[None]:
        """Watch these parts, instead of their parent, for the time of the block."""
        own = self._tasks.pop(parent, None)
        self._tasks.update(tasks)
        watch = asyncio.create_task(self._watch([*tasks.values()])) if own is None else None
        try:
            yield
        finally:
            if watch:
                watch.cancel()
            for branch in tasks:
                self.ended(branch)
            if own:
                self._tasks[parent] = own

    def ended(self, branch: EpisodeBranch) -> None:
        """Stop counting a part."""
        self._tasks.pop(branch, None)
        self._changes += 1

    async def _watch(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Cancel the tasks when no part can continue, after LOOKS looks without a change.

        A single look could be wrong after a stop of the process.
        """
        looks, changes = 0, -1
        while looks < LOOKS:
            await asyncio.sleep(SECONDS / LOOKS)
            reason = self._standstill()
            looks = looks + 1 if reason and changes == self._changes else 0
            changes = self._changes
        self.failure = ServiceFailure(reason)
        for task in tasks:
            task.cancel()

    def _standstill(self) -> str:
        """Why no part can continue; empty where one can."""
        chains = {branch: _chain(task) for branch, task in self._tasks.items()}
        idle = [branch for branch in chains if not self._asking[branch]]
        held = [branch for branch in chains if self._asking[branch]]
        waits = all(_waits_for_a_part(chains[branch]) for branch in idle)
        if not idle or not waits or any(self._held[b] < self._asking[b] for b in held):
            return ""
        return (
            f"Parts of episode.gather wait for each other: {_listed(chains, idle)} for an Event, a "
            f"Queue or a Lock of asyncio{_replies(chains, held)}. Return values from the parts and "
            "continue after gather, or wait in a tool."
        )

    def _count(self, branch: EpisodeBranch, held: bool, change: int) -> None:
        self._asking[branch] += change
        self._held[branch] += change if held else 0
        self._changes += 1


def _replies(chains: Mapping[EpisodeBranch, Chain], held: Sequence[EpisodeBranch]) -> str:
    if not held:
        return ""
    return f", {_listed(chains, held)} for a reply, which begins when every part asks for one"


def _listed(chains: Mapping[EpisodeBranch, Chain], branches: Sequence[EpisodeBranch]) -> str:
    """The author's functions and their lines: `listen (duo.py:14), speak (duo.py:21)`."""
    return ", ".join(
        f"{part.__qualname__} ({Path(part.cr_code.co_filename).name}:{part.cr_frame.f_lineno})"
        for part in (chains[branch][:2][-1] for branch in branches)
        if part.cr_frame is not None
    )


def _chain(task: asyncio.Task[Any]) -> Chain:
    """The coroutines that a task runs, each of which awaits the next one."""
    chain: list[CoroutineType[Any, Any, Any]] = []
    first: object = task.get_coro()
    coroutine = first.coroutine if isinstance(first, Steps) else first
    while isinstance(coroutine, CoroutineType):
        chain.append(coroutine)
        coroutine = coroutine.cr_await
    return chain


def _waits_for_a_part(chain: Chain) -> bool:
    """Whether author code waits for a primitive of asyncio, as network libraries do too."""
    files = [coroutine.cr_code.co_filename for coroutine in chain]
    first = next((number for number, file in enumerate(files) if file in PRIMITIVES), 0)
    return first > 0 and INSTALLED.isdisjoint(Path(files[first - 1]).parts)
