"""Untrained speakers (participants of an episode), played by fixed policies or chat services."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agentfly_core.inference.endpoints.chat import ChatRequest
from agentfly_core.inference.sampler import Request, Sampler, SamplerSession
from agentfly_core.records.trajectory import Message, Observation, Sampled
from agentfly_core.rollout.episode_state import EpisodeState
from agentfly_core.rollout.history import timeline
from agentfly_core.rollout.history.prompts import SampledReply
from agentfly_core.rollout.history.timeline import EpisodeBranch, Reply
from agentfly_core.rollout.rules import (
    EpisodeRules,
    Frozen,
    FrozenPolicy,
    FrozenSelf,
    ReplySettings,
)
from agentfly_core.rollout.speaker import MakesSpeaker, Speaker
from agentfly_core.system.formats import hashing

if TYPE_CHECKING:
    from agentfly_core.inference.endpoints.chat_service import ChatClient


@dataclass(eq=False)
class Cast(SamplerSession):
    """The sampler sessions and chat services that reply for the speakers of concurrent episodes.

    A session samples the replies of one policy.

    - `sessions`: the session of the trained policy, followed by a session for each frozen policy
    - `places`: maps each role with a frozen policy to the index of the policy's session in
      `sessions`
    - `speakers`: maps each role with a chat service to a function that creates a speaker of the
      role
    """

    sessions: Sequence[SamplerSession]
    places: Mapping[str, int]
    speakers: Mapping[str, MakesSpeaker]

    async def sample(self, request: Request) -> Sampled:
        """Sample a reply in the session of the speaker's policy. Raises ServiceLost if the sampler
        dies.

        Some sessions start a batch only when each running branch (concurrent coroutine) has
        requested a reply. To prevent a deadlock between two such sessions, a branch that waits for
        `sessions[i]` is not counted as running in `sessions[:i]`.
        """
        place = self.places.get(request.conversation.speaker.partition("/")[0], 0)
        for session in self.sessions[:place]:
            session.close()
        try:
            return await self.sessions[place].sample(request)
        finally:
            for session in self.sessions[:place]:
                session.open()

    def open(self) -> None:
        """Count one more running branch (concurrent coroutine) in each sampler session."""
        for session in self.sessions:
            session.open()

    def close(self) -> None:
        """Count one running branch (concurrent coroutine) fewer in each sampler session."""
        for session in self.sessions:
            session.close()

    def of(self, speaker: str) -> SamplerSession:
        """Return the sampler session of the policy that replies for a speaker.

        For a speaker of a chat service (model API), this Cast is returned instead.
        """
        role = speaker.partition("/")[0]
        # a chat service answers requests one by one, and has no hidden states
        own = role not in self.speakers
        return self.sessions[self.places.get(role, 0)].of(speaker) if own else self


@asynccontextmanager
async def cast(
    sampler: Sampler, frozen: Mapping[str, Frozen], episodes: int
) -> AsyncIterator[Cast]:
    """Open the sampler sessions and chat services for a batch of concurrent episodes.

    `sampler` samples the trained policy. `frozen` maps each untrained role of an episode to the
    policy or chat service that plays the role. `episodes` is the number of episodes that run at
    once. Raises ValueError if the API key of a chat service is missing.
    """
    samplers, places = [sampler], dict[str, int]()
    chats: dict[str, ChatClient] = {}
    speakers: dict[str, MakesSpeaker] = {}
    async with AsyncExitStack() as stack:
        for role, speaker in frozen.items():
            if isinstance(speaker, FrozenSelf):
                continue
            if isinstance(speaker, FrozenPolicy):
                # roles with the same policy share a session, so their requests share batches
                if speaker.sampler not in samplers:
                    samplers.append(speaker.sampler)
                places[role] = samplers.index(speaker.sampler)
                continue
            if speaker.name not in chats:
                chat = await stack.enter_async_context(speaker.service.open())
                chats[speaker.name] = chat
            speakers[role] = partial(EndpointSpeaker, chats[speaker.name])
        sessions = [await stack.enter_async_context(one.shard(episodes)) for one in samplers]
        yield Cast(sessions, places, speakers)


class EndpointSpeaker(Speaker):
    """A speaker (participant of an episode) whose replies come from a chat service, without tokens.

    Replies are limited only by `max_turns` and `max_tokens`. The service counts `max_tokens` with
    its own tokenizer.
    """

    def __init__(
        self, chat: ChatClient, state: EpisodeState, name: str, rules: EpisodeRules, *begin: Message
    ) -> None:
        super().__init__(state, name, rules, *begin)
        self._chat = chat

    async def _reply(
        self,
        branch: EpisodeBranch,
        before: Reply | None,
        read: tuple[Message | Observation, ...],
        settings: ReplySettings,
    ) -> Reply:
        """Request a reply from the chat service.

        Raises EpisodeOver if no turn is left, ServiceFailure if no reply arrives, and NoReply if
        the service refuses the request.
        """
        self._require_turn(branch)
        messages = (*timeline.messages_of(before), *read)
        params, tools = settings.params, settings.form.tools
        request = ChatRequest(messages, tools, params.temperature, params.max_tokens, params.stop)
        prompt = hashing.digest(request.body())[:16]

        async def ask(seed: int) -> SampledReply:
            return SampledReply(await self._chat.ask(request, seed))

        return await self._placed(branch, before, read, settings, prompt, ask)
