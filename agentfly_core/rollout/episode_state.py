"""State that all speakers of an episode share."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentfly_core.authoring.author_call import is_cancelled
from agentfly_core.authoring.injection import Lent
from agentfly_core.inference.sampler import SamplerSession
from agentfly_core.records.timing import Doing, Span, moment
from agentfly_core.records.trajectory import Ending
from agentfly_core.rollout.history.forks import Repetition
from agentfly_core.rollout.history.timeline import EpisodeBranch
from agentfly_core.rollout.rules import EpisodeOver, EpisodeSpec
from agentfly_core.rollout.standstill import Parts

R = TypeVar("R")
current_branch: ContextVar[EpisodeBranch | None] = ContextVar("branch", default=None)
"""The branch of the running agent code, None outside `Episode.gather`."""


@dataclass
class EpisodeState:
    """Shared state of an episode's speakers: the sampler, lent objects and recorded times."""

    spec: EpisodeSpec
    session: SamplerSession
    main: str
    max_sampled_tokens: int
    lent: dict[type[Lent], Lent]
    spans: list[Span] = field(default_factory=list)
    trunk: EpisodeBranch = field(default_factory=EpisodeBranch)
    parts: Parts = field(default_factory=Parts)
    repetition: Repetition = field(default_factory=Repetition)
    fault: Exception | None = None
    """The last error of an agent's request, which is no error in the agent's code."""
    over: bool = False
    """Whether the agent has ended; later requests of its tasks are refused."""
    _opened: int = 0
    """Branches that are open at the sampler, beyond the episode's own."""
    _requests: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def branch(self) -> EpisodeBranch:
        """The branch of the calling agent."""
        return current_branch.get() or self.trunk

    async def do(self, work: Coroutine[None, None, R], held: bool = False) -> R:
        """Run a request as a task that `end` can cancel. A `held` reply waits for all open parts.

        Raises EpisodeOver once the episode is over or the agent was cancelled.
        """
        if self.over or is_cancelled():
            work.close()
            raise EpisodeOver(Ending.FAILED)
        request = asyncio.create_task(work)
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        try:
            with self.parts.asking(self.branch, held):
                return await request
        except EpisodeOver:
            raise
        except Exception as error:  # EpisodeOver is not recorded as an error of the agent's code
            self.fault = error
            raise

    async def end(self) -> None:
        """Cancel requests of tasks that outlive the agent, and refuse later ones."""
        self.over = True
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        for _ in range(self._opened):
            self.session.close()
        # parts that wait for messages are already closed; the shard closes the episode itself
        for _ in range(-self._opened):
            self.session.open()

    def open(self) -> None:
        """Tell the sampler that one more branch is open."""
        if not self.over:
            self.session.open()
            self._opened += 1

    def close(self) -> None:
        """Tell the sampler that one branch was closed."""
        if not self.over:
            self.session.close()
            self._opened -= 1

    @contextmanager
    def timed(self, doing: Doing) -> Iterator[None]:
        """Record a span with the start and duration of the block."""
        start = moment()
        try:
            yield
        finally:
            self.spans.append(Span(doing, start, moment()))
