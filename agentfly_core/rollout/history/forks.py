"""Forks of episodes.

A forked episode repeats its parent's replies and tool calls up to the fork, and then continues on
its own.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.injection import Lent
from agentfly_core.records.trajectory import BadCall, Observation, ToolCall
from agentfly_core.rollout.history.timeline import EpisodePlace, Reply

Snapshot = Mapping[type[Lent], bytes]
"""Saved states of environments, by environment class."""


class AsksDifferently(ServiceFailure):
    """A forked episode did not repeat its parent (the episode from which it was forked).

    Before the fork, the agent requested other replies or tool calls than in the parent, or got
    other tool results.
    """

    def __init__(self, difference: str) -> None:
        super().__init__(
            f"A forked episode {difference}. Before a fork, the agent's requests must depend only "
            "on the problem, the replies and the tool results."
        )


@dataclass(frozen=True, slots=True)
class AnsweredCalls:
    """Tool calls that were executed concurrently, and the result of each call in the same order."""

    calls: tuple[ToolCall | BadCall, ...]
    observations: tuple[Observation, ...]


@dataclass
class EpisodePath:
    """The recorded replies and results of an episode, which a forked episode repeats.

    - `replies`: the replies, by their positions in the episode
    - `answers`: the tool calls with their results, by their positions in the episode
    - `forks`: the values that `Episode.fork` returned
    """

    replies: dict[EpisodePlace, Reply] = field(default_factory=dict)
    answers: dict[EpisodePlace, AnsweredCalls] = field(default_factory=dict)
    forks: list[int] = field(default_factory=list)

    def copy(self, fork: int) -> "EpisodePath":
        """Return a copy for a forked episode, with `fork` appended to the list `forks`.

        `fork` is the value that `Episode.fork` returns in the forked episode.
        """
        # copied, because later changes of the parent's replies must not affect the child
        replies = {place: replace(reply) for place, reply in self.replies.items()}
        return EpisodePath(replies, {**self.answers}, [*self.forks, fork])


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """The point from which a forked episode continues.

    - `path`: the replies and tool calls up to this point
    - `snapshot`: the saved states of the environments. If it is None, the environments cannot be
      restored, so the tool calls in `path` are executed again.
    - `facts`: the value of `Problem.facts` (such as the solution) at this point
    - `before_reply`: True for a fork before a reply, which the setting `rollout.branching` makes.
      False for a fork that the agent makes with `Episode.fork`.
    """

    path: EpisodePath
    snapshot: Snapshot | None
    facts: Mapping[str, Any]
    before_reply: bool = False

    @property
    def place(self) -> tuple[int, ...]:
        """The position of the fork, from which the id and the seed of the fork are derived.

        The first number counts the replies before the fork. The other numbers are `path.forks`, the
        values that `Episode.fork` has returned.
        """
        return (len(self.path.replies), *self.path.forks)


@dataclass
class Repetition:
    """Records the replies and tool results of an episode in `path`.

    A forked episode repeats the replies and tool results in `origin.path` up to the fork. For other
    episodes, `origin` is None.
    """

    origin: ForkOrigin | None = None
    path: EpisodePath = field(default_factory=EpisodePath)
    _calls: Counter[EpisodePlace] = field(default_factory=Counter)

    @property
    def repeats(self) -> ForkOrigin | None:
        """The point of the fork (`origin`), while a forked episode repeats its parent's replies.

        After the episode has reached this point, the value is None. In an episode that is not a
        fork, the value is always None.
        """
        origin = self.origin
        return origin if origin and len(self.path.forks) < len(origin.path.forks) else None

    def calls_behind(self, place: EpisodePlace) -> int:
        """Return the index of the next batch of tool calls at `place`, from 0.

        `place` identifies the point after a speaker's last reply. A batch contains the tool calls
        that are executed together. Each call of this method increases the index by 1.
        """
        self._calls[place] += 1
        return self._calls[place] - 1

    def reply(self, place: EpisodePlace, prompt: str, form: str) -> Reply | None:
        """Return the recorded reply to repeat, or None if no reply is repeated.

        A forked episode repeats the replies of its parent episode up to the fork. `prompt` is the
        digest of the prompt. `form` is the digest of the tools and the reasoning mode. Raises
        AsksDifferently if the parent has no reply at `place`, or a reply with another `prompt` or
        `form`.
        """
        if not (origin := self.repeats):
            return None
        stored = origin.path.replies.get(place)
        if stored is None or (stored.prompt, stored.form) != (prompt, form):
            raise AsksDifferently(
                "requests a reply to a prompt that differs from its parent's prompt"
            )
        return stored

    def answers(
        self, place: EpisodePlace, calls: tuple[ToolCall | BadCall, ...]
    ) -> tuple[Observation, ...] | None:
        """Return the recorded tool results to repeat, or None if the calls must be executed.

        After the fork, all calls are executed. Before the fork, results are repeated if the
        environments' states were saved at the fork; otherwise the calls are executed again. Raises
        AsksDifferently if `calls` differ from the parent episode's calls at `place`.
        """
        if not (origin := self.repeats):
            return None
        stored = origin.path.answers.get(place)
        if stored is None or stored.calls != calls:
            raise AsksDifferently("makes tool calls that differ from its parent's calls")
        return stored.observations if origin.snapshot is not None else None

    def answered(self, place: EpisodePlace, answered: AnsweredCalls) -> None:
        """Record the results of tool calls.

        Up to the fork, a forked episode may execute the tool calls of its parent episode again.
        Raises AsksDifferently if the new results differ from the parent's results.
        """
        if (origin := self.repeats) and origin.path.answers[place] != answered:
            raise AsksDifferently("gets tool results that differ from its parent's results")
        self.path.answers[place] = answered

    def fork(self) -> int:
        """Return the result of the next call of `Episode.fork` in a forked episode.

        Calls before the fork give the same result as in the parent episode. The call at the fork
        gives the number of the forked episode (1, 2, ...). This call raises AsksDifferently if the
        forked episode has not repeated all replies and tool calls of its parent.
        """
        assert self.origin, "only a forked episode repeats forks"
        mine, parents = self.path, self.origin.path
        mine.forks.append(parents.forks[len(mine.forks)])
        if not self.repeats:
            self._require_whole(parents)
        return mine.forks[-1]

    def begins_at(self) -> ForkOrigin | None:
        """Return `origin` if the next reply is the first after the fork, else None.

        The repetition of the parent episode ends when this method returns `origin`. For a fork that
        the agent made with `Episode.fork`, the result is always None. Raises AsksDifferently if the
        next reply is the first after the fork, but some of the parent's replies or calls were
        skipped.
        """
        origin = self.repeats
        if not origin or not origin.before_reply or len(self.path.replies) < origin.place[0]:
            return None
        self._require_whole(origin.path)
        self.path.forks = [*origin.path.forks]
        return origin

    def _require_whole(self, parents: EpisodePath) -> None:
        mine = self.path
        if (mine.replies.keys(), mine.answers.keys()) != (
            parents.replies.keys(),
            parents.answers.keys(),
        ):
            raise AsksDifferently(
                "forks before it has repeated all replies and tool calls of its parent"
            )
