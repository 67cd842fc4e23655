"""Serve a policy to any client.

Each conversation is an episode. The episodes are kept in memory only.
"""

import asyncio
import secrets
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentfly_core.gateway.chat import RequestRefused
from agentfly_core.gateway.session import Exchange, GatewaySession, HttpCall, SpeakerPattern
from agentfly_core.records.messages import echo_key
from agentfly_core.records.trajectory import Message
from agentfly_core.rollout.episode import Episode, RolloutSpec
from agentfly_core.rollout.frozen import Cast
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.system.formats import hashing
from agentfly_core.system.service import ServiceLost

MOST_CONVERSATIONS = 1000
MOST_REPLIES = 1000
MOST_BYTES = 256 * 1024 * 1024


def endless(spec: RolloutSpec) -> RolloutSpec:
    """Return `spec` without its tools and rewards, and without limits on turns and sampled tokens.

    Clients of a served policy have their own tools.
    """
    most = sys.maxsize
    own = replace(spec, tools=(), rewards=(), limits={}, tasks={})
    return replace(own, max_turns=most, max_sampled_tokens=most)


@dataclass(eq=False, slots=True)
class _Conversation:
    session: GatewaySession
    running: int = 0


@dataclass
class ServedPolicy:
    """A policy that replies to any client. `name` is the model name that clients see.

    `spec` comes from the function `endless`, so the number of turns is unlimited. `cast` samples
    the replies of all speakers (the participants of an episode). Two requests belong to the same
    episode if their messages before the first reply are equal. If a client sends back an earlier
    reply, the prompt contains the tokens that were sampled for this reply. The text of this reply
    is not encoded a second time. The most recently used episodes are kept; their total size is at
    most MOST_BYTES bytes. If the sampler dies, the future `lost` raises the error.
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
        """The names of the policy and of the speakers. Clients use them as model names."""
        return [self.name, *self.speakers]

    def reward(self, body: str) -> None:
        """Raise RequestRefused, because a served policy takes no rewards."""
        raise RequestRefused("A served policy accepts no rewards, because it is not trained.", 404)

    async def complete(self, call: HttpCall) -> Exchange:
        """Reply to a request of a client. Return the Exchange, i.e. the request with its replies.

        Raises RequestRefused if the request is invalid, a limit is reached, or no reply can be
        sampled.
        """
        conversation = self._conversation(call)
        session = conversation.session
        if not conversation.running:  # concurrent requests are branches of the episode
            self.cast.open()
        conversation.running += 1
        try:
            return await session.complete(call)
        finally:
            self._forget()
            conversation.running -= 1
            if not conversation.running:
                self.cast.close()
            error = session.broken.exception() if session.broken.done() else None
            # all other errors end only this conversation
            if isinstance(error, ServiceLost) and not self.lost.done():
                self.lost.set_exception(error)

    def _conversation(self, call: HttpCall) -> _Conversation:
        """Return the conversation to which a request belongs, and mark it as the most recently
        used.
        """
        request = call.request
        replied = [isinstance(one, Message) and one.role == "assistant" for one in request.messages]
        first = replied.index(True) if True in replied else len(replied)
        key = hashing.digest([echo_key(one) for one in request.messages[:first]])
        kept = self._kept.pop(key, None)
        # the time of a request grows with the earlier replies, so long conversations start again
        if kept is None or kept.session.broken.done() or kept.session.replies >= MOST_REPLIES:
            kept = _Conversation(GatewaySession(self._episode(), self.speakers))
        self._kept[key] = kept
        return kept

    def _forget(self) -> None:
        """Discard the least recently used conversations until their number and size are within
        limits.
        """
        kept = self._kept
        while len(kept) > MOST_CONVERSATIONS or (
            sum(one.session.bytes for one in kept.values()) > MOST_BYTES
        ):
            kept.popitem(last=False)

    def _episode(self) -> Episode:
        # a random seed, because equal prompts of two conversations should get different replies
        episode = replace(self.episode, seed=secrets.randbits(63))
        return Episode(episode, self.spec, self.cast, self.cast.speakers, self.name)
