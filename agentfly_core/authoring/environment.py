"""The environment interface: state that tools and rewards share during an episode."""

from collections.abc import Iterable
from operator import attrgetter
from typing import ClassVar

from agentfly_core.records.trajectory import Problem


class ServiceFailure(RuntimeError):
    """A service that a tool, reward or environment uses still failed after all retries.

    The episode ends as FAILED and gets no score.
    """


class Environment:
    """State that tools and rewards share during an episode.

    Subclasses add methods, and tools get instances by annotation. The resource manager calls
    `start` once, `reset` before and `healthy` after each episode, and `close` at the end. After an
    error the instance is closed.

        class Shop(Environment):
            async def reset(self, problem: Problem) -> str:
                self.stock = dict(problem.facts["stock"])
                return f"The shop has {len(self.stock)} products."

    Use `Child` for a separate process (docs/how-to/environments.md).

    A `spoilt` instance may still have a running call, so the instance is closed after the episode.
    `max_uses` limits the episodes of an instance. Set it to 1 if the class cannot be reset.
    `agentfly config` prints `notice`. `reset_text` is the last result of `reset`.
    """

    max_uses: ClassVar[int | None] = None
    notice: ClassVar[str] = ""

    spoilt: bool = False
    reset_text: str = ""

    async def start(self) -> None:
        """Start programs that the instance needs. Called once, before the first reset."""

    async def reset(self, problem: Problem) -> str | None:
        """Forget the previous episode and set up this problem.

        Returns None, or a text that the model reads as an observation after the problem.
        """
        raise NotImplementedError(
            f"{type(self).__name__} lacks reset(). Define `async def reset(self, problem)`."
        )

    async def healthy(self) -> bool:
        """Whether another episode may use this instance."""
        return True

    def state_key(self) -> str:
        """Return a name of the state, for algorithms that compare replies to equal states (GiGPO).

        The name must depend on the state only, not on the path to it (no counters, no times). If
        the name is empty, the latest text that the model has read is used instead.
        """
        return ""

    async def snapshot(self) -> bytes:
        """Save the state for `restore`. Raises NotImplementedError if states cannot be restored."""
        raise self._no_going_back()

    async def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot of an instance with the same problem.

        Raises the same errors as `snapshot`.
        """
        raise self._no_going_back()

    def _no_going_back(self) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} cannot go back to an earlier state; define snapshot() and "
            "restore()."
        )

    async def close(self) -> None:
        """Free all resources of `start`; called once."""


def in_order(kinds: Iterable[type[Environment]]) -> tuple[type[Environment], ...]:
    """Sort environment classes in the order in which every episode leases them."""
    # sorted by name, because names are the same in all processes
    return tuple(sorted(kinds, key=attrgetter("__module__", "__qualname__")))
