"""Forks: episodes that repeat their parent's path up to `Episode.fork`, and then differ from it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.injection import Lent
from agentfly_core.records.trajectory import BadCall, Observation, ToolCall
from agentfly_core.rollout.history.timeline import EpisodePlace, Reply

Snapshot = Mapping[type[Lent], bytes]
"""States of environments by kind."""


class AsksDifferently(ServiceFailure):
    """A forked episode does not repeat the path of its parent."""

    def __init__(self, difference: str) -> None:
        super().__init__(
            f"A forked episode {difference}. Before a fork, an agent must depend only on the "
            "problem, on replies and on answers of tools."
        )


@dataclass(frozen=True, slots=True)
class AnsweredCalls:
    """Calls that ran together, and their answers."""

    calls: tuple[ToolCall | BadCall, ...]
    observations: tuple[Observation, ...]


@dataclass
class EpisodePath:
    """All replies and answered calls of an episode by their places, and the results of `fork`."""

    replies: dict[EpisodePlace, Reply] = field(default_factory=dict)
    answers: dict[EpisodePlace, AnsweredCalls] = field(default_factory=dict)
    forks: list[int] = field(default_factory=list)

    def copy(self, fork: int) -> "EpisodePath":
        """Return the path of a child: this path, followed by this result of `fork`."""
        # copied, because later changes of the parent's replies must not affect the child
        replies = {place: replace(reply) for place, reply in self.replies.items()}
        return EpisodePath(replies, {**self.answers}, [*self.forks, fork])


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """The start of a forked episode: the path before it, states of environments, and facts.

    Without a `snapshot` its environments cannot be restored, so its tools are called again. The
    agent calls `fork` there, or with `before_reply` asks for a reply.
    """

    path: EpisodePath
    snapshot: Snapshot | None
    facts: Mapping[str, Any]
    before_reply: bool = False

    @property
    def place(self) -> tuple[int, ...]:
        """Its place in the parent: the number of replies before it, and the results of forks."""
        return (len(self.path.replies), *self.path.forks)


@dataclass
class Repetition:
    """The path of an episode so far. A forked episode repeats the path of its `origin` first."""

    origin: ForkOrigin | None = None
    path: EpisodePath = field(default_factory=EpisodePath)
    _calls: Counter[EpisodePlace] = field(default_factory=Counter)

    @property
    def repeats(self) -> ForkOrigin | None:
        """The origin until the episode has reached its fork, and None afterwards."""
        origin = self.origin
        return origin if origin and len(self.path.forks) < len(origin.path.forks) else None

    def calls_behind(self, place: EpisodePlace) -> int:
        """Return how many times tools were called after this reply, and count one more."""
        self._calls[place] += 1
        return self._calls[place] - 1

    def reply(self, place: EpisodePlace, prompt: str, form: str) -> Reply | None:
        """Return the reply to repeat; None after the fork. Raises AsksDifferently."""
        if not (origin := self.repeats):
            return None
        stored = origin.path.replies.get(place)
        if stored is None or (stored.prompt, stored.form) != (prompt, form):
            raise AsksDifferently("asks for a reply to another prompt than its parent")
        return stored

    def answers(
        self, place: EpisodePlace, calls: tuple[ToolCall | BadCall, ...]
    ) -> tuple[Observation, ...] | None:
        """Return the answers to repeat; None for calls that must be executed.

        Raises AsksDifferently.
        """
        if not (origin := self.repeats):
            return None
        stored = origin.path.answers.get(place)
        if stored is None or stored.calls != calls:
            raise AsksDifferently("calls other tools than its parent")
        return stored.observations if origin.snapshot is not None else None

    def answered(self, place: EpisodePlace, answered: AnsweredCalls) -> None:
        """Record answers to calls.

        Raises AsksDifferently if they had to equal the parent's and do not.
        """
        if (origin := self.repeats) and origin.path.answers[place] != answered:
            raise AsksDifferently("gets other answers of tools than its parent")
        self.path.answers[place] = answered

    def fork(self) -> int:
        """Return the result of a fork to repeat. Raises AsksDifferently."""
        assert self.origin, "only a forked episode repeats forks"
        mine, parents = self.path, self.origin.path
        mine.forks.append(parents.forks[len(mine.forks)])
        if not self.repeats:
            self._require_whole(parents)
        return mine.forks[-1]

    def begins_at(self) -> ForkOrigin | None:
        """The origin if the next reply is the first one of a fork `before_reply`, else None; raises
        AsksDifferently.
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
            raise AsksDifferently("forks before it has repeated all replies and calls")
