"""A sampler whose replies a chat service gives: a baseline to hold a policy against."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agentfly_core.inference.endpoints.chat import ChatRequest
from agentfly_core.inference.endpoints.chat_service import ChatClient, ChatService
from agentfly_core.inference.endpoints.failures import BudgetSpent, EndpointLost, EndpointRefused
from agentfly_core.inference.sampler import Request, SamplerLost
from agentfly_core.inference.scripted import NoReply
from agentfly_core.records.messages import reply_text
from agentfly_core.records.trajectory import Sampled


@dataclass
class EndpointSampler:
    """Replies with what a chat service says, in tokens of the experiment's model, each of
    log-probability 0.0; it has none to train on.

        EndpointSampler(service, encode, stop_token=2)

    The service reads the conversation in its own format, with the tools, and gets temperature,
    length and stop strings. A reply has `max_tokens` of the service's own tokens at most.
    """

    service: ChatService
    encode: Callable[[str], Sequence[int]]
    stop_token: int
    version: int = -1

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Label what follows with `version`."""
        self.version = version

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[_Session]:
        """Connect to the service; raises ValueError where its key is not there."""
        async with self.service.open() as chat:
            yield _Session(replace(self), chat)

    def rest(self) -> None:
        """It uses no GPU."""


@dataclass(frozen=True, slots=True)
class _Session:
    sampler: EndpointSampler
    chat: ChatClient

    async def sample(self, request: Request) -> Sampled:
        """The service's reply; raises SamplerLost where it gives none, and NoReply where it refuses
        or may not be asked any more.
        """
        conversation, params = request.conversation, request.params
        question = ChatRequest(
            conversation.messages,
            conversation.tools,
            params.temperature,
            params.max_tokens,
            params.stop,
        )
        try:
            reply = await self.chat.ask(question, conversation.seed)
        except EndpointLost as lost:
            raise SamplerLost(str(lost)) from lost
        except (BudgetSpent, EndpointRefused) as refused:
            raise NoReply(str(refused)) from refused
        ends = () if reply.finish == "length" else (self.sampler.stop_token,)
        tokens = (*self.sampler.encode(reply_text(reply.message)), *ends)
        logprobs = (0.0,) * len(tokens)
        return Sampled(tokens, logprobs, self.sampler.version, reply.finish)

    def open(self) -> None:
        """Do nothing: replies are not batched."""

    def close(self) -> None:
        """Do nothing: replies are not batched."""

    def waits_for_all(self, speaker: str) -> bool:
        """False: replies are not batched."""
        return False
