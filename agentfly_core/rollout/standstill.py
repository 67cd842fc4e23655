"""Detect coroutines of `Episode.gather` that wait for each other, and fail their episode."""

import asyncio
import asyncio.locks
import asyncio.queues
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CoroutineType
from typing import Any, TypeAlias

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.time_limits import Steps
from agentfly_core.rollout.history.timeline import EpisodeBranch
from agentfly_core.system.formats.tracebacks import INSTALLED

SECONDS = 60.0
LOOKS = 4
PRIMITIVES = {asyncio.locks.__file__, asyncio.queues.__file__}
Chain: TypeAlias = "Sequence[CoroutineType[Any, Any, Any]]"


@dataclass
class Parts:
    """The running coroutines of `Episode.gather`, and their pending replies and tool calls.

    The method `running` finds coroutines that wait for each other, and cancels them.

    Some samplers delay a pending reply until every running coroutine has made a request. Such a
    reply is called held. `_pending` contains a pair (branch, held) for each pending reply or tool
    call.
    """

    failure: ServiceFailure | None = None
    _tasks: dict[EpisodeBranch, asyncio.Task[Any]] = field(default_factory=dict)
    _pending: list[tuple[EpisodeBranch, bool]] = field(default_factory=list)
    _waiting: dict[EpisodeBranch, asyncio.Future[None]] = field(default_factory=dict)
    _changes: int = 0

    @contextmanager
    def asking(self, branch: EpisodeBranch, held: bool) -> Iterator[None]:
        """Count one reply or tool call of a coroutine as pending until the `with` block ends.

        `held` is True for a reply that the sampler delays until every running coroutine has made a
        request.
        """
        self._pending.append((branch, held))
        self._changes += 1
        try:
            yield
        finally:
            self._pending.remove((branch, held))
            self._changes += 1

    @contextmanager
    def running(
        self, parent: EpisodeBranch, tasks: Mapping[EpisodeBranch, asyncio.Task[Any]]
    ) -> Iterator[None]:
        """Watch running coroutines, and cancel all of them if they wait for each other.

        `tasks` contains the coroutines that one `gather` call in the branch `parent` of the episode
        started. After a cancellation, the field `failure` contains the error. The watch ends with
        the `with` block.
        """
        nested = parent in self._tasks
        self._tasks.update(tasks)
        watch = None if nested else asyncio.create_task(self._watch([*tasks.values()]))
        try:
            yield
        finally:
            if watch:
                watch.cancel()
            for branch in tasks:
                self.ended(branch)

    def ended(self, branch: EpisodeBranch) -> None:
        """Record that the coroutine in this branch of the episode has ended."""
        self._tasks.pop(branch, None)
        self._changes += 1
        asyncio.get_running_loop().call_soon(self._fail_if_all_wait)

    @contextmanager
    def waiting(self, branch: EpisodeBranch, arrived: asyncio.Future[None]) -> Iterator[None]:
        """Count a coroutine as waiting for a message until the `with` block ends.

        `arrived` is the future for which the coroutine waits. If all coroutines wait for messages,
        every such future gets ServiceFailure as its exception.
        """
        self._waiting[branch] = arrived
        asyncio.get_running_loop().call_soon(self._fail_if_all_wait)
        try:
            yield
        finally:
            self.woken(branch)

    def woken(self, branch: EpisodeBranch) -> None:
        """Record that a coroutine has stopped waiting for a message (see `waiting`)."""
        self._waiting.pop(branch, None)
        self._changes += 1

    def _fail_if_all_wait(self) -> None:
        if not self._waiting or (chains := self._chains()).keys() - self._waiting.keys():
            return
        names = _listed(chains, [*chains]) or "the agent"
        self.failure = ServiceFailure(
            f"All running coroutines of the episode wait for a message: {names}. So none of them "
            "can send a message. Let a coroutine send a final message before it returns."
        )
        for arrived in self._waiting.values():
            if not arrived.done():
                arrived.set_exception(self.failure)

    async def _watch(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Cancel the tasks if several successive checks find that no coroutine can continue.

        The constant LOOKS is the number of these checks. A single check could be wrong, for example
        after the process was paused.
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
        """Return the reason why no coroutine can continue, or "" if at least one can continue."""
        chains = self._chains()
        asking = {branch for branch, _ in self._pending}
        # a coroutine that waits for a message does not delay the replies of other coroutines
        mail = [branch for branch in chains if branch in self._waiting]
        idle = [branch for branch in chains if branch not in asking and branch not in mail]
        asks = [branch for branch in chains if branch in asking]
        served = chains.keys() & {branch for branch, held in self._pending if not held}
        if not idle or served or not all(_waits_for_a_part(chains[branch]) for branch in idle):
            return ""
        starts = "which is sampled only after every coroutine has requested a reply"
        reply = f" These wait for a reply, {starts}: {_listed(chains, asks)}."
        mails = f" These wait for a message: {_listed(chains, mail)}."
        return (
            "Coroutines of episode.gather wait for each other. These wait for an asyncio Event, "
            f"Queue or Lock: {_listed(chains, idle)}.{reply if asks else ''}{mails if mail else ''}"
            " Return values from the coroutines and use them after gather, or send messages by "
            "episode.mailbox()."
        )

    def _chains(self) -> dict[EpisodeBranch, Chain]:
        """Return each task's chain of awaiting coroutines, by branch. The outermost comes first.

        A task is left out while the task runs a nested `gather` call, because the tasks of the
        nested call are included.
        """
        parents = {branch.number[:-1] for branch in self._tasks}
        own = {one: task for one, task in self._tasks.items() if one.number not in parents}
        return {branch: _chain(task) for branch, task in own.items()}


def _listed(chains: Mapping[EpisodeBranch, Chain], branches: Sequence[EpisodeBranch]) -> str:
    """Return the name and current line of the coroutine in each of `branches`.

    Example: `listen (duo.py:14), speak (duo.py:21)`.
    """
    return ", ".join(
        f"{part.__qualname__} ({Path(part.cr_code.co_filename).name}:{part.cr_frame.f_lineno})"
        for part in (chains[branch][:2][-1] for branch in branches)
        if part.cr_frame is not None
    )


def _chain(task: asyncio.Task[Any]) -> Chain:
    """Return the coroutines of a task, from the outermost to the innermost.

    Each coroutine in the list awaits the coroutine after it.
    """
    chain: list[CoroutineType[Any, Any, Any]] = []
    first: object = task.get_coro()
    coroutine = first.coroutine if isinstance(first, Steps) else first
    while isinstance(coroutine, CoroutineType):
        chain.append(coroutine)
        coroutine = coroutine.cr_await
    return chain


def _waits_for_a_part(chain: Chain) -> bool:
    """Whether the agent's own code waits for an Event, Lock or Queue of asyncio.

    False if an installed package, such as a network library, waits for the Event, Lock or Queue.
    """
    files = [coroutine.cr_code.co_filename for coroutine in chain]
    first = next((number for number, file in enumerate(files) if file in PRIMITIVES), 0)
    return first > 0 and INSTALLED.isdisjoint(Path(files[first - 1]).parts)
