"""The state that all speakers of an episode share."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from agentfly_core.authoring import author_part
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.injection import Lent
from agentfly_core.authoring.time_limits import is_cancelled
from agentfly_core.inference.sampler import SamplerSession
from agentfly_core.records.timing import Doing, Span, moment
from agentfly_core.records.trajectory import Ending, Problem
from agentfly_core.rollout.history.forks import ForkOrigin, Repetition, Snapshot
from agentfly_core.rollout.history.timeline import EpisodeBranch
from agentfly_core.rollout.rules import EpisodeOver, EpisodeSpec
from agentfly_core.rollout.standstill import Parts
from agentfly_core.system.formats.text import fault

R = TypeVar("R")
STATE_SECONDS = 30.0
current_branch: ContextVar[EpisodeBranch | None] = ContextVar("branch", default=None)
"""The history of replies of the running coroutine, set by `Episode.gather` and `Episode.branch`.

The value is None in coroutines outside of both methods.
"""


@dataclass
class EpisodeState:
    """State that all speakers of an episode share, such as the environments.

    `session` samples the speakers' replies. `spans` records when replies, tool calls and other work
    began and ended.
    """

    spec: EpisodeSpec
    session: SamplerSession
    main: str
    lent: dict[type[Lent], Lent]
    spans: list[Span] = field(default_factory=list)
    trunk: EpisodeBranch = field(default_factory=EpisodeBranch)
    parts: Parts = field(default_factory=Parts)
    repetition: Repetition = field(default_factory=Repetition)
    children: list[ForkOrigin] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    fault: Exception | None = None
    """The last error of a request (a reply, a tool call or a snapshot). An error in the agent's own
    code is not stored in this field.
    """
    over: bool = False
    """Whether the agent has ended. Requests from its remaining asyncio tasks are refused."""
    _opened: int = 0
    """The number of calls of `open` minus the number of calls of `close` before the agent ended."""
    _requests: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def branch(self) -> EpisodeBranch:
        """The branch (history of replies) of the current coroutine."""
        return current_branch.get() or self.trunk

    @property
    def problem(self) -> Problem:
        """The episode's own copy of its problem."""
        problem = self.lent[Problem]
        assert isinstance(problem, Problem)
        return problem

    @property
    def environments(self) -> dict[type[Lent], Environment]:
        """The environment instances that the episode uses, by class."""
        return {kind: one for kind, one in self.lent.items() if isinstance(one, Environment)}

    async def snapshot(self) -> Snapshot:
        """Return the saved states of all environments, by class.

        Raises NotImplementedError if an environment does not implement `snapshot`. Raises
        ServiceFailure for any other error of `snapshot`.
        """
        environments = self.environments
        return {
            kind: await state_of(one, "snapshot", one.snapshot)
            for kind, one in environments.items()
        }

    async def restore(self, snapshot: Snapshot) -> None:
        """Set all environments to their saved states.

        Raises NotImplementedError if an environment does not implement `restore`. Raises
        ServiceFailure for any other error of `restore`.
        """
        for kind, one in self.environments.items():
            await state_of(one, "restore", partial(one.restore, snapshot[kind]))

    async def state_key(self) -> str:
        """Return the results of `Environment.state_key` of all environments, joined by spaces.

        Empty results are left out. If a call of `Environment.state_key` raises NotImplementedError,
        this error is raised. Raises ServiceFailure for any other error of such a call.
        """
        return " ".join(filter(None, [await _state_key(one) for one in self.environments.values()]))

    async def fork(self, count: int, before_reply: bool = False) -> None:
        """Record `count` forked episodes, which continue from the current point of this episode.

        `before_reply` is True for a fork before a reply, which the setting `rollout.branching`
        requests. It is False for a fork that the agent requests with `Episode.fork`. Raises
        ServiceFailure if an environment's `snapshot` fails.
        """
        try:
            snapshot = await self.snapshot()
        except NotImplementedError:
            snapshot = None
        for number in range(1, count + 1):
            # copied now, because this episode continues and may change its facts and its path
            facts, path = deepcopy(self.problem.facts), self.repetition.path.copy(number)
            self.children.append(ForkOrigin(path, snapshot, facts, before_reply))

    async def begin_at(self, origin: ForkOrigin) -> None:
        """Restore the environments and `Problem.facts` (data for rewards) as of the fork `origin`.

        A forked episode calls this method after it has repeated the replies of the original
        episode. Without a snapshot in `origin`, nothing is restored. In this case, the forked
        episode has executed the original episode's tool calls again.
        """
        if origin.snapshot is not None:
            await self.restore(origin.snapshot)
            self.lent[Problem] = replace(self.problem, facts=deepcopy(origin.facts))

    async def do(self, work: Coroutine[None, None, R], held: bool = False) -> R:
        """Run a request (a reply, a tool call or a snapshot) as a task that `end` can cancel.

        `held` is True for a request of a reply from a sampler that samples in batches. Such a
        sampler samples only after each running coroutine of the episode has requested a reply.
        Raises EpisodeOver if the episode is over or the agent was cancelled.
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
        except Exception as error:  # except EpisodeOver, see above
            self.fault = error
            raise

    async def end(self) -> None:
        """Cancel all running requests of the agent, and refuse its later requests.

        The method is called when the agent has ended. Asyncio tasks that the agent started may
        then still be running.
        """
        self.over = True
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        for _ in range(self._opened):
            self.session.close()
        # branches that wait for messages are already closed; the shard closes the first branch
        # itself
        for _ in range(-self._opened):
            self.session.open()

    def open(self) -> None:
        """Report one more running branch (concurrent coroutine) of the episode to the sampler.

        A sampler that samples in batches waits for a request of each running branch.
        """
        if not self.over:
            self.session.open()
            self._opened += 1

    def close(self) -> None:
        """Report the end of a branch (concurrent coroutine) to the sampler.

        The sampler then no longer waits for requests of this branch.
        """
        if not self.over:
            self.session.close()
            self._opened -= 1

    @contextmanager
    def timed(self, doing: Doing) -> Iterator[None]:
        """Record how long the code in the `with` block runs. `doing` is the kind of work."""
        start = moment()
        try:
            yield
        finally:
            self.spans.append(Span(doing, start, moment()))


async def state_of(environment: Environment, method: str, work: Callable[[], Awaitable[R]]) -> R:
    """Await `work()`, which calls a method of the environment, and return the result.

    `method` is the name of this method, such as "snapshot". Raises NotImplementedError if the
    environment does not implement the method, and ServiceFailure for any other error.
    """
    kind = type(environment).__name__
    try:
        return await author_part.call(work, STATE_SECONDS, f"{kind}.{method}()", [environment])
    except (ServiceFailure, NotImplementedError):
        raise
    except Exception as error:  # author code
        raise ServiceFailure(f"{kind}.{method}() failed: {fault(error)}") from error


async def _state_key(environment: Environment) -> str:
    async def key() -> str:
        return environment.state_key()

    return await state_of(environment, "state_key", key)
