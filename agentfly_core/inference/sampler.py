"""The sampler interface."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Sampled
from agentfly_core.system.service import ServiceLost


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a reply is sampled: `SamplingParams(temperature=1.0, max_tokens=32, stop_tokens=(2,),
    stop=("Observation:",))`.

    Only temperature: top-k, top-p, penalties and the like would renormalise the probabilities that
    training relies on. `temperature=0` is greedy. `stop` are the strings with which a reply ends:
    its last token is the first with which its text holds one of them.
    """

    temperature: float
    max_tokens: int
    stop_tokens: tuple[int, ...]
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to be sampled; `prompt` are the tokens of `conversation`, which has the seed."""

    prompt: Sequence[int]
    params: SamplingParams
    conversation: Conversation


class SamplerLost(ServiceLost):
    """The service behind a sampler died or stopped answering; the shard must be played again."""


class SamplerSession(Protocol):
    """A sampler lent to the episodes of one shard.

    Decoding in batches waits for a request of each episode, or of each branch of an episode that
    asks for several replies at the same time.
    """

    async def sample(self, request: Request) -> Sampled:
        """One reply; the last token is a stop token iff `finish == "stop"`, and holds the end of a
        stop string iff it is "stop_string". Raises SamplerLost.
        """

    def open(self) -> None:
        """Open it for a further branch of an episode, whose requests decoding is to wait for."""

    def close(self) -> None:
        """Close it for one branch or episode, for which decoding no longer waits."""

    def waits_for_all(self, speaker: str) -> bool:
        """Whether a reply of this speaker begins only when every open branch has a request."""


class Sampler(Protocol):
    """Samples tokens from the newest loaded policy."""

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Take the weights of a policy directory, check that they are in place, and label what
        follows with `version`.

        A policy that is an adapter stands on the model in the directory `base`. Does nothing when
        that very version is loaded already. Raises SamplerLost when the service is gone.
        """

    def shard(self, episodes: int) -> AbstractAsyncContextManager[SamplerSession]:
        """Lend the sampler to a shard of this many episodes, on the running event loop."""

    def rest(self) -> None:
        """Give the learner the memory of the GPUs that both use, if there are any, until the next
        `load`.

        Raises SamplerLost when the service is gone.
        """
