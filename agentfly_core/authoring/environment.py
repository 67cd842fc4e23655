"""The environment interface: state that tools and rewards share during an episode."""

from collections.abc import Iterable
from operator import attrgetter
from typing import ClassVar

from agentfly_core.records.trajectory import Problem


class ServiceFailure(RuntimeError):
    """A service that a tool, a reward or an environment needs has failed.

    If all retries of the call fail, too, the episode gets no score. If the call is part of the
    rollout, the episode also ends as FAILED.
    """


class Environment:
    """State that tools and rewards share during an episode.

    Subclasses add methods. A tool gets an instance if a parameter is annotated with the class. The
    resource manager calls `start` once, `reset` before each episode, `healthy` after each episode,
    and `close` at the end. After an error the instance is closed.

        class Shop(Environment):
            async def reset(self, problem: Problem) -> str:
                self.stock = dict(problem.facts["stock"])
                return f"The shop has {len(self.stock)} products."

    To run a program in a separate process, use `Child` (docs/how-to/environments.md).

    - `max_uses`: the maximum number of episodes of an instance. Set it to 1 if instances cannot be
      reset.
    - `notice`: a text that `agentfly config` prints
    - `spoilt`: True if a call that exceeded its time limit may still use the instance. The resource
      manager closes such an instance after the episode.
    - `reset_text`: the last text that `reset` returned
    """

    max_uses: ClassVar[int | None] = None
    notice: ClassVar[str] = ""

    spoilt: bool = False
    reset_text: str = ""

    async def start(self) -> None:
        """Start the programs that the instance needs. Called once, before the first `reset`."""

    async def reset(self, problem: Problem) -> str | None:
        """Discard the state of the previous episode and set up this problem.

        If a text is returned, the model reads it as an observation after the problem.
        """
        raise NotImplementedError(
            f"{type(self).__name__} lacks reset(). Define `async def reset(self, problem)`."
        )

    async def healthy(self) -> bool:
        """Return whether another episode may use this instance."""
        return True

    def state_key(self) -> str:
        """Return a name of this environment's current state.

        Algorithms such as GiGPO compare replies that were given in the same state. The name must
        depend on the state only, not on earlier states, so it must not contain counters or times.
        If the name is empty, the latest text that the model has read is used instead.
        """
        return ""

    async def snapshot(self) -> bytes:
        """Save the state for `restore`. Raises NotImplementedError if the class cannot restore
        states.
        """
        raise self._no_going_back()

    async def restore(self, snapshot: bytes) -> None:
        """Set the state to a snapshot, which may come from another instance with the same problem.

        Raises the same errors as the method `snapshot`.
        """
        raise self._no_going_back()

    def _no_going_back(self) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} cannot go back to an earlier state; define snapshot() and "
            "restore()."
        )

    async def close(self) -> None:
        """Free all resources that `start` allocated. Called once."""


def in_order(kinds: Iterable[type[Environment]]) -> tuple[type[Environment], ...]:
    """Sort environment classes by module and name.

    All episodes lease their environments in this order, which avoids deadlocks.
    """
    # sorted by name, because names are equal in all processes
    return tuple(sorted(kinds, key=attrgetter("__module__", "__qualname__")))
