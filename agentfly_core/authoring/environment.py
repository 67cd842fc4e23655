"""The environment interface: state that tools and rewards share during an episode."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import ClassVar

from agentfly_core.records.trajectory import Problem


class ServiceFailure(RuntimeError):
    """The process behind a tool or an environment died or stopped answering, past its retries.

    The episode ends FAILED and unscored: the model is not to blame. Tools, rewards and environments
    raise it.
    """


class Environment:
    """A place with state that tools and rewards share during one episode.

    A subclass adds its own verbs, and tools ask for it by annotation. The resource manager calls
    `start` once, `reset` before each episode, `healthy` after it, and `close` at the end; any of
    them may raise, and then the instance is closed and never lent again.

        class Shop(Environment):
            async def reset(self, problem: Problem) -> str:
                self.stock = dict(problem.facts["stock"])
                return f"The shop has {len(self.stock)} products."

    One that needs a process of its own starts a `Child` (docs/environments.md).

    `spoilt` means that a call may still be at work in this instance (a tool that ran out of time):
    it is closed after the episode, whatever `healthy` says. A `lost` one is used no more: the event
    loop on which it lives was given up, since code held it (docs/tools.md). A kind's `max_uses`
    bounds how many episodes an instance serves, also where the experiment allows more: 1 for what
    cannot be reset. A kind's `notice` is what `agentfly config` says of experiments with it.
    `reset_text` is the text that the last `reset` returned.
    """

    max_uses: ClassVar[int | None] = None
    notice: ClassVar[str] = ""

    spoilt: bool = False
    lost: bool = False
    reset_text: str = ""

    async def start(self) -> None:
        """Get ready to be lent; called once."""

    async def reset(self, problem: Problem) -> str | None:
        """Forget the previous episode and set up this problem.

        Returns None, or text for the model: an observation after the problem.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must say how it is set up for a problem: define reset()."
        )

    async def healthy(self) -> bool:
        """Whether this instance may be lent again."""
        return True

    def state_key(self) -> str:
        """The agent's state as a name, for algorithms that compare replies to one state (GiGPO).

        The same state of a problem has the same name however it was reached: no counters, no clock.
        Empty: what the model newly read stands for it.
        """
        return ""

    async def snapshot(self) -> bytes:
        """The state, for `restore`; raises NotImplementedError where there is no going back."""
        raise self._no_going_back()

    async def restore(self, snapshot: bytes) -> None:
        """Go back to a snapshot of this instance, or of another one with the same problem.

        The same verbs give the same from then on. Raises NotImplementedError as `snapshot` does.
        """
        raise self._no_going_back()

    def _no_going_back(self) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} cannot go back to an earlier state: it defines no snapshot() "
            "and restore()."
        )

    async def close(self) -> None:
        """Free what `start` took; called once."""


def in_order(kinds: Iterable[type[Environment]]) -> tuple[type[Environment], ...]:
    """Kinds of environments in the order in which every episode leases them."""
    return tuple(sorted(kinds, key=attrgetter("__module__", "__qualname__")))
