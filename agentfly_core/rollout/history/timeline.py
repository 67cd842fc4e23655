"""The replies of an episode, with the conversation of each reply and the order of all replies."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, count
from operator import attrgetter

from agentfly_core.records.messages import echo_key
from agentfly_core.records.trajectory import (
    Ending,
    Finish,
    Given,
    Message,
    Observation,
    Sampled,
    Turn,
)

ORDER = ("call", "seed", "prompt")
"""Attributes by which replies are sorted. The order is chronological. Concurrent replies have an
order that does not depend on their timing.
"""
EpisodePlace = tuple[int | str, ...]
"""The position of a reply or a tool call in an episode. The position is the same each time the
episode is played.
"""


@dataclass(eq=False, slots=True)
class Reply:
    """A reply of a speaker, and its position in the conversation and in the episode.

    - `before`: the previous reply of the conversation, None for a new prompt
    - `read`: the messages between `before` and this reply
    - `given`: the tokens of the prompt after the reply `before`. If `opens` is set, `given` is the
      whole prompt.
    - `message`: the text and the tool calls
    - `sampled`: the tokens with log-probabilities; empty if a chat service replies for an
      untrained role
    - `temperature`: the sampling temperature; None means the experiment's temperature
    - `state`: the results of `Environment.state_key` before the reply, joined by spaces. Equal
      states of the environments have equal texts.
    - `prompt`: the digest of all tokens before the reply, or of the request to a chat service
    - `speaker`: the name of the speaker
    - `call`: the index of the request for this reply among all requests of the episode
    - `seed`: derived from the episode's seed and the `place`
    - `place`: the position of the reply in the episode, see `EpisodePlace`
    - `form`: the key of the conversation's `Form`, which contains the tools and `thinking`
    - `opens`: whether the reply starts a new context
    - `limit`: the limit that the reply reached, or None. At a limit, `Speaker.reply` ends the
      episode.
    - `trained`: whether training uses the reply. The gateway, i.e. the HTTP server for agents, sets
      `trained` to False if the client did not receive the reply.
    - `earned`: the rewards that the reply's tool calls returned
    - `conversation`: the key of all messages up to and including this reply
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
    place: EpisodePlace
    form: str
    opens: bool = False
    limit: Ending | None = None
    trained: bool = True
    earned: list[float] = field(default_factory=list)
    conversation: bytes = field(init=False)

    def __post_init__(self) -> None:
        if self.before is not None and self.before.form == self.form:
            key, messages = self.before.conversation, self.read
        else:
            key = _empty(self.speaker, self.form)
            messages = (*messages_of(self.before), *self.read)
        self.conversation = reduce(_longer, (*messages, self.message), key)

    @property
    def alone(self) -> bool:
        """Whether `place` (the reply's position in the episode) is a single index.

        This is the case in the conversation that begins with the episode's first messages. The
        exceptions are replies inside `Episode.gather`, further replies to the same prompt, and
        replies whose index another reply already has. In these cases, and in all other
        conversations, `place` begins with the speaker and the prompt's digest.
        """
        return len(self.place) == 1

    @property
    def tokens(self) -> tuple[int, ...]:
        """The sampled tokens."""
        return tuple(chain.from_iterable(span.tokens for span in self.sampled))

    @property
    def logprobs(self) -> tuple[float, ...]:
        """The log-probability of each sampled token."""
        return tuple(chain.from_iterable(span.logprobs for span in self.sampled))

    @property
    def entropies(self) -> tuple[float, ...]:
        """The entropies of the sampled tokens' distributions. Empty if they were not requested."""
        return tuple(chain.from_iterable(span.entropies for span in self.sampled))

    @property
    def finish(self) -> Finish:
        """The reason why the reply ended."""
        return self.sampled[-1].finish if self.sampled else "length" if self.message.cut else "stop"


def path(reply: Reply | None) -> list[Reply]:
    """Return the replies of a conversation up to and including `reply`, in order."""
    replies = []
    while reply is not None:
        replies.append(reply)
        reply = reply.before
    return replies[::-1]


def tokens_of(reply: Reply | None) -> tuple[int, ...]:
    """Return the tokens of a reply's context: all prompt tokens and sampled tokens up to the end of
    the reply. For None, the result is empty.
    """
    replies = path(reply)
    start = max((place for place, one in enumerate(replies) if one.opens), default=0)
    pairs = ((one.given, one.tokens) for one in replies[start:])
    return tuple(chain.from_iterable(chain.from_iterable(pairs)))


def messages_of(reply: Reply | None) -> tuple[Message | Observation, ...]:
    """Return all messages of a conversation up to and including a reply."""
    return tuple(chain.from_iterable((*one.read, one.message) for one in path(reply)))


def digest(tokens: Sequence[int]) -> str:
    """Return a digest of a prompt's tokens, as 16 hex digits."""
    # integers of fixed width are unambiguous, and faster to hash than text
    return hashlib.sha256(array("q", tokens).tobytes()).hexdigest()[:16]


def _empty(speaker: str, form: str) -> bytes:
    """Return the key of a speaker's empty conversation."""
    return f"{speaker} {form}".encode()


def _longer(conversation: bytes, item: Message | Observation) -> bytes:
    """Return the key of a conversation after the message `item` is appended."""
    return hashlib.sha256(conversation + echo_key(item).encode()).digest()


def turns_of(replies: Iterable[Reply]) -> tuple[Turn, ...]:
    """Convert a speaker's replies to turns, in chronological order.

    Several replies may continue the same earlier reply. Only the first of these replies stays in
    the earlier reply's context. The other replies start new contexts. A reply also starts a new
    context if its field `opens` is True. In a new context, all earlier tokens are prompt tokens. So
    each sampled token is trained in exactly one context.
    """
    turns: list[tuple[Turn, Reply]] = []
    contexts: dict[Reply | None, int] = {}  # the index of each context, by its last reply so far
    opening, opened = set[Reply](), count()
    for reply in sorted(replies, key=attrgetter(*ORDER)):
        if reply.before in contexts and not reply.opens:
            context, given = contexts.pop(reply.before), reply.given
        else:
            earlier = () if reply.opens else tokens_of(reply.before)
            context, given = next(opened), (*earlier, *reply.given)
            opening.add(reply)
        contexts[reply] = context
        turns.append((_turn(reply, context, given), reply))
    turns.sort(key=lambda pair: (pair[0].call, pair[0].context))
    places: dict[Reply | None, int] = {reply: place for place, (_, reply) in enumerate(turns)}
    return tuple(
        replace(turn, continues=places.get(reply.before)) if reply in opening else turn
        for turn, reply in turns
    )


def _turn(reply: Reply, context: int, given: tuple[int, ...]) -> Turn:
    return Turn(
        read=reply.read,
        given=Given(given),
        reply=reply.message,
        sampled=reply.sampled if reply.trained else _untrained(reply.sampled),
        context=context,
        call=reply.call,
        temperature=reply.temperature,
        state=reply.state,
        # the exact sum, because calls that run at the same time end in any order
        reward=math.fsum(reply.earned) if reply.earned else None,
    )


def _untrained(spans: Iterable[Sampled]) -> tuple[Sampled, ...]:
    return tuple(replace(span, trained=False) for span in spans)


@dataclass(eq=False)
class EpisodeBranch:
    """The history of replies for one coroutine of the agent.

    The coroutine's next reply can continue any of these replies. `Episode.gather` creates one
    branch for each of its coroutines.

    - `number`: the index of the branch in each of the nested `gather` calls. (1, 0) is the first
      branch of a `gather` that runs in the second branch of the outer `gather`.
    - `replies`: all replies, including the replies before `gather`
    - `last`: the last reply of each context (a conversation that `Speaker.context` opened)
    - `conversations`: the reply at the end of each conversation, by the conversation's key
    - `samples`: the count of replies, by speaker and prompt
    - `unread`: tool results that their speaker has not read, as pairs of speaker and result
    - `answers`: the answers that speakers have set, as pairs of speaker and answer
    - `parts`: the number of branches that were opened from this branch and are still open
    - `least_call`: the smallest value that `Reply.call` of the next reply may have. A message from
      another coroutine raises `least_call` above `Reply.call` of the sender's earlier replies.
    """

    number: tuple[int, ...] = ()
    replies: list[Reply] = field(default_factory=list)
    last: dict[object, Reply] = field(default_factory=dict)
    conversations: dict[bytes, Reply] = field(default_factory=dict)
    samples: Counter[tuple[str, str]] = field(default_factory=Counter)
    unread: list[tuple[str, Observation]] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    parts: int = 0
    least_call: int = 0
    _busy: bool = False

    def __post_init__(self) -> None:
        self._begin, self._last_before = len(self.replies), dict(self.last)

    @property
    def call(self) -> int:
        """The index of the next request for a reply. `Reply.call` stores this index."""
        return max((self.least_call, *(reply.call + 1 for reply in self.replies)))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Reserve this branch for the code in the `with` block.

        Without the reservation, other coroutines could add replies at the same time, in a random
        order. Raises ValueError if the branch is already reserved, or if a branch that was opened
        from this branch is still open.
        """
        self._refuse(self._busy or self.parts > 0)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def part(self) -> EpisodeBranch:
        """Return a new branch for the replies in a `with` block of `Episode.branch`.

        The new branch begins with a copy of this branch's history.

        Raises ValueError if other code has reserved this branch with `alone`.
        """
        self._refuse(self._busy)
        return self._copy(self.number, self.samples)

    def samples_before(self, speaker: str, prompt: str) -> int:
        """Return how many replies a speaker has already given to a prompt.

        Afterwards, increase the stored number by 1, because the caller samples another reply.
        """
        self.samples[speaker, prompt] += 1
        return self.samples[speaker, prompt] - 1

    def longest_beginning(
        self, speaker: str, form: str, messages: Sequence[Message | Observation]
    ) -> tuple[Reply | None, int]:
        """Find the longest earlier conversation of a speaker that is a prefix of `messages`.

        `form` is a digest of the tools and of the setting `thinking`. Conversations with another
        digest are ignored. Return the last reply and the number of messages of the conversation. If
        no conversation matches, return None and 0.
        """
        key, longest, size = _empty(speaker, form), None, 0
        for number, item in enumerate(messages, 1):
            key = _longer(key, item)
            if (reply := self.conversations.get(key)) is not None:
                longest, size = reply, number
        return longest, size

    def add(self, reply: Reply) -> None:
        """Append a reply to the history.

        The tool results that the reply's speaker got before this reply now count as read. They are
        removed from `unread`.
        """
        self.replies.append(reply)
        same = self.conversations.setdefault(reply.conversation, reply)
        # of several equal replies the earliest is kept, so the order in which branches join does
        # not matter
        self.conversations[reply.conversation] = min(same, reply, key=attrgetter(*ORDER))
        self.unread = [pair for pair in self.unread if pair[0] != reply.speaker]

    def answered(self, speaker: str, answers: Sequence[Observation]) -> None:
        """Store tool results for the speaker (participant of the episode) that called the tools.

        Add the rewards of the tools to the speaker's last reply.
        """
        self.unread += [(speaker, answer) for answer in answers]
        if own := [reply for reply in self.replies if reply.speaker == speaker]:
            own[-1].earned.extend(one.reward for one in answers if one.reward is not None)

    def unread_by(self, speaker: str) -> tuple[Observation, ...]:
        """Return the tool results that arrived since the speaker's last reply."""
        return tuple(answer for one, answer in self.unread if one == speaker)

    def fork(self, count: int) -> list[EpisodeBranch]:
        """Return `count` branches that share this branch's history."""
        return [self._copy((*self.number, n), Counter(self.samples)) for n in range(count)]

    def join(self, branches: Sequence[EpisodeBranch]) -> None:
        """Append the replies of these branches to the history.

        If several branches continued the same context (conversation), the context then ends with
        the reply of the branch that comes last in `branches`.
        """
        for branch in branches:
            for reply in branch.replies[branch._begin :]:
                self.add(reply)
                if branch.samples is not self.samples:
                    self.samples[reply.speaker, reply.prompt] += 1
            last = branch._last_before
            self.last |= {one: at for one, at in branch.last.items() if last.get(one) is not at}
            self.answers += branch.answers
        self.unread += [pair for branch in branches for pair in branch.unread]

    def _copy(self, number: tuple[int, ...], samples: Counter[tuple[str, str]]) -> EpisodeBranch:
        return EpisodeBranch(
            number, [*self.replies], dict(self.last), dict(self.conversations), samples
        )

    def _refuse(self, busy: bool) -> None:
        if busy:
            raise ValueError(
                "Two replies were requested at the same time, so their order is random. Request "
                "them in `await episode.gather(one(), another())`, or in `async with "
                "episode.branch():` if they begin at different times."
            )
