"""The replies of an episode: which one each continues from, and which lie before it in time."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count
from operator import attrgetter

from agentfly_core.records.trajectory import Given, Message, Observation, Sampled, Turn


@dataclass(frozen=True, eq=False, slots=True)
class Reply:
    """A reply and the reply `before` it in its conversation, None for a new prompt.

    `given` are the tokens between the two, or the whole prompt of a reply that `opens` a context;
    `thinking` is the setting of `reply`. `prompt` is the digest of all tokens before it, or of
    the request to a chat service. `call` is its time; a `temperature` of None is the experiment's.
    `earned` is the reward of its calls.
    """

    before: Reply | None
    read: tuple[Message | Observation, ...]
    given: tuple[int, ...]
    message: Message
    sampled: tuple[Sampled, ...]
    temperature: float | None
    state: str
    prompt: str
    speaker: str
    call: int
    seed: int
    opens: bool = False
    thinking: bool | None = None
    earned: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> tuple[int, ...]:
        """What was sampled of it."""
        return tuple(chain.from_iterable(span.tokens for span in self.sampled))


def path(reply: Reply | None) -> list[Reply]:
    """The replies of a conversation up to this one, in order."""
    replies = []
    while reply is not None:
        replies.append(reply)
        reply = reply.before
    return replies[::-1]


def tokens_of(reply: Reply | None) -> tuple[int, ...]:
    """All tokens of a conversation up to and with a reply, as they were given and sampled."""
    replies = path(reply)
    start = max((place for place, one in enumerate(replies) if one.opens), default=0)
    pairs = ((one.given, one.tokens) for one in replies[start:])
    return tuple(chain.from_iterable(chain.from_iterable(pairs)))


def messages_of(reply: Reply | None) -> tuple[Message | Observation, ...]:
    """All that was read and said in a conversation up to and with a reply."""
    return tuple(chain.from_iterable((*one.read, one.message) for one in path(reply)))


def digest(tokens: Sequence[int]) -> str:
    """A name of 16 hex digits of a prompt's tokens."""
    return hashlib.sha256(array("q", tokens).tobytes()).hexdigest()[:16]


def longest_beginning(
    replies: Iterable[Reply], messages: Sequence[Message | Observation]
) -> Reply | None:
    """The last reply of the longest conversation with which these messages begin, or None."""
    longest, most = None, 0
    for reply in replies:
        history = messages_of(reply)
        if most < len(history) <= len(messages) and history == tuple(messages[: len(history)]):
            longest, most = reply, len(history)
    return longest


def turns_of(replies: Iterable[Reply]) -> tuple[Turn, ...]:
    """The record of a speaker's replies, in the order of time.

    The first reply after another one continues its context, unless it `opens` one. Further ones
    open a new context with all earlier tokens as given: a token is sampled in one context only.
    """
    turns: list[Turn] = []
    contexts: dict[Reply | None, int] = {}  # by their last replies so far
    opened = count()
    for reply in sorted(replies, key=attrgetter("call", "seed")):
        if reply.before in contexts and not reply.opens:
            context, given = contexts.pop(reply.before), reply.given
        else:
            earlier = () if reply.opens else tokens_of(reply.before)
            context, given = next(opened), (*earlier, *reply.given)
        contexts[reply] = context
        turns.append(
            Turn(
                read=reply.read,
                given=Given(given),
                reply=reply.message,
                sampled=reply.sampled,
                context=context,
                call=reply.call,
                temperature=reply.temperature,
                state=reply.state,
                # the exact sum: calls that run at the same time come in any order
                reward=math.fsum(reply.earned) if reply.earned else None,
            )
        )
    return tuple(sorted(turns, key=attrgetter("call", "context")))


@dataclass(eq=False)
class EpisodeBranch:
    """The history of an agent's next reply in program order.

    `Episode.gather` makes branches numbered by place: (1, 0) is the first branch of the second one.
    `last` has the last reply of each context, `unread` unread observations by speaker, `answers`
    answers with their speakers.
    """

    number: tuple[int, ...] = ()
    replies: list[Reply] = field(default_factory=list)
    last: dict[object, Reply] = field(default_factory=dict)
    unread: list[tuple[str, Observation]] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    _busy: bool = False

    @property
    def call(self) -> int:
        """The time of the next reply."""
        return max((reply.call for reply in self.replies), default=-1) + 1

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Raise ValueError where something else is being done in this branch."""
        if self._busy:
            raise ValueError(
                "Two replies were asked for at the same time, so that chance would order them: use "
                "`await episode.gather(one(), another())` for what runs at the same time."
            )
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def add(self, reply: Reply) -> None:
        """Have a reply lie before the next one; its speaker has read what it was answered."""
        self.replies.append(reply)
        self.unread = [pair for pair in self.unread if pair[0] != reply.speaker]

    def answered(self, speaker: str, answers: Sequence[Observation]) -> None:
        """Store answers of tools to a speaker; its last reply earns their rewards."""
        self.unread += [(speaker, answer) for answer in answers]
        if own := [reply for reply in self.replies if reply.speaker == speaker]:
            own[-1].earned.extend(one.reward for one in answers if one.reward is not None)

    def unread_by(self, speaker: str) -> tuple[Observation, ...]:
        """What tools answered to a speaker since its last reply."""
        return tuple(answer for one, answer in self.unread if one == speaker)

    def fork(self, count: int) -> list[EpisodeBranch]:
        """`count` branches that share this branch's history."""
        return [
            EpisodeBranch((*self.number, number), [*self.replies], dict(self.last))
            for number in range(count)
        ]

    def join(self, branches: Sequence[EpisodeBranch]) -> None:
        """Continue after these branches; the last one counts if several continued a context."""
        shared, last = len(self.replies), dict(self.last)
        for branch in branches:
            for reply in branch.replies[shared:]:
                self.add(reply)
            self.last |= {one: at for one, at in branch.last.items() if last.get(one) is not at}
            self.answers += branch.answers
        self.unread += [pair for branch in branches for pair in branch.unread]
