"""A sampler for baselines. It returns the replies of a chat service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.inference.endpoints.chat import ChatRequest
from agentfly_core.inference.endpoints.chat_service import ChatClient, ChatService
from agentfly_core.inference.sampler import Request, SamplerSession
from agentfly_core.records.trajectory import Finish, Message, Sampled
from agentfly_core.system.service import ServiceLost


@dataclass
class EndpointSampler:
    """Returns the replies of a chat service as tokens.

    `encode` returns the tokens of a reply, including its end token. All log-probabilities are 0.0.
    The service counts `max_tokens` with its own tokenizer. So `encode` may return more than
    `max_tokens` tokens.
    """

    service: ChatService
    encode: Callable[[Message], tuple[int, ...]]
    version: int = -1

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Set the policy version of later replies. No policy is loaded."""
        self.version = version

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[_Session]:
        """Open a session with the chat service. Raises ValueError if the API key is missing."""
        async with self.service.open() as chat:
            yield _Session(replace(self), chat)

    def rest(self) -> None:
        """Do nothing, because this sampler uses no GPU."""


@dataclass(frozen=True, slots=True)
class _Session(SamplerSession):
    # a service returns whole messages
    continues: ClassVar[bool] = False

    sampler: EndpointSampler
    chat: ChatClient

    async def sample(self, request: Request) -> Sampled:
        """Return a reply of the service.

        Raises ServiceLost if all attempts of the request fail. Raises NoReply if the service
        refuses the request, or if the command's budget of requests or tokens is spent.
        """
        conversation, params = request.conversation, request.params
        limits = params.temperature, params.max_tokens, params.stop
        question = ChatRequest(conversation.messages, conversation.tools, *limits)
        try:
            reply = await self.chat.ask(question, conversation.seed)
        except ServiceFailure as lost:
            raise ServiceLost(str(lost)) from lost
        tokens = self.sampler.encode(reply)[: -1 if reply.cut else None]
        finish: Finish = "length" if reply.cut else "stop"
        return Sampled(tokens, (0.0,) * len(tokens), self.sampler.version, finish)
