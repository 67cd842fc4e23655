"""Serve a policy to any client. Each conversation is an episode that is not stored."""

import asyncio
import secrets
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentfly_core.gateway.chat import RequestRefused
from agentfly_core.gateway.session import Exchange, GatewaySession, HttpCall, SpeakerPattern
from agentfly_core.inference.sampler import SamplerLost
from agentfly_core.records.messages import echo_key
from agentfly_core.records.trajectory import Message
from agentfly_core.rollout.episode import Episode, RolloutSpec
from agentfly_core.rollout.frozen import Cast
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.system.formats import hashing

MOST_CONVERSATIONS = 1000
MOST_REPLIES = 1000
MOST_BYTES = 256 * 1024 * 1024
REPLY_BYTES, TOKEN_BYTES = 4000, 64
"""Estimated bytes of memory for each reply, and for each token that was read or sampled."""


def endless(spec: RolloutSpec) -> RolloutSpec:
    """Return the rules of an experiment without its tools, rewards and limits on turns, for clients
    with their own tools.
    """
    most = sys.maxsize
    own = replace(spec, tools=(), rewards=(), limits={}, tasks={})
    return replace(own, max_turns=most, max_sampled_tokens=most)


@dataclass(eq=False, slots=True)
class _Conversation:
    session: GatewaySession
    running: int = 0
    replies: int = 0
    tokens: int = 0
    counted: set[Exchange] = field(default_factory=set)

    @property
    def bytes(self) -> int:
        """An estimate of the memory that the conversation takes, in bytes."""
        return REPLY_BYTES * self.replies + TOKEN_BYTES * self.tokens

    def count(self, exchange: Exchange) -> None:
        """Add the replies of an exchange, unless they are already counted."""
        if exchange not in self.counted:
            self.counted.add(exchange)
            replies = exchange.replies.result()
            self.replies += len(replies)
            self.tokens += sum(len(one.given) + len(one.tokens) for one in replies)


@dataclass
class ServedPolicy:
    """A policy that answers any client under the `name` of its model.

    `spec` comes from `endless`, and `cast` has no episodes of its own. Conversations with equal
    messages before the first reply share an episode. In it, replies that a client sends back keep
    their tokens. The most recently used episodes are kept, up to MOST_BYTES in total. `lost`
    completes with the error of a lost sampler.
    """

    name: str
    spec: RolloutSpec
    cast: Cast
    episode: EpisodeSpec
    speakers: Mapping[str, SpeakerPattern]
    lost: asyncio.Future[None] = field(default_factory=asyncio.Future)
    _kept: OrderedDict[str, _Conversation] = field(default_factory=OrderedDict)

    @property
    def models(self) -> list[str]:
        """Return the names of the speakers, which clients see as models."""
        return [self.name, *self.speakers]

    def reward(self, body: str) -> None:
        """Raise RequestRefused, because a served policy takes no rewards."""
        raise RequestRefused("A served policy is not trained and takes no rewards.", 404)

    async def complete(self, call: HttpCall) -> Exchange:
        """Answer a request; returns its exchange with the replies. Raises RequestRefused."""
        conversation = self._conversation(call)
        session = conversation.session
        if not conversation.running:  # further requests are open branches of the episode
            self.cast.open()
        conversation.running += 1
        try:
            exchange = await session.complete(call)
            conversation.count(exchange)
            return exchange
        finally:
            self._forget()
            conversation.running -= 1
            if not conversation.running:
                self.cast.close()
            error = session.broken.exception() if session.broken.done() else None
            # other errors break their own conversation only
            if isinstance(error, SamplerLost) and not self.lost.done():
                self.lost.set_exception(error)

    def _conversation(self, call: HttpCall) -> _Conversation:
        """Return the conversation of a request, and mark it as the most recently used."""
        request = call.request
        replied = [isinstance(one, Message) and one.role == "assistant" for one in request.messages]
        first = replied.index(True) if True in replied else len(replied)
        key = hashing.digest([echo_key(one) for one in request.messages[:first]])
        kept = self._kept.pop(key, None)
        # the time of a call grows with the replies, so long conversations start again
        if kept is None or kept.session.broken.done() or kept.replies >= MOST_REPLIES:
            kept = _Conversation(GatewaySession(self._episode(), self.speakers))
        self._kept[key] = kept
        return kept

    def _forget(self) -> None:
        """Discard the least recently used conversations until the limits are met."""
        most = MOST_CONVERSATIONS
        while len(self._kept) > most or sum(one.bytes for one in self._kept.values()) > MOST_BYTES:
            self._kept.popitem(last=False)

    def _episode(self) -> Episode:
        # otherwise equal prompts of two conversations would get equal replies
        episode = replace(self.episode, seed=secrets.randbits(63))
        return Episode(episode, self.spec, self.cast, self.cast.speakers, self.name)
