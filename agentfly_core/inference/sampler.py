"""The sampler interface."""

from abc import ABC, abstractmethod
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
    """Sampling settings: `SamplingParams(1.0, max_tokens=32, stop_tokens=(2,), stop=("\\n\\n",))`.

    `temperature=0` is greedy. Top-k, top-p and penalties are missing, because they change the
    probabilities that training uses. A reply ends with the token that completes a string of `stop`.
    With `entropies` a reply has the entropy of each token's distribution, see `Sampled`.
    """

    temperature: float
    max_tokens: int
    stop_tokens: tuple[int, ...]
    stop: tuple[str, ...] = ()
    entropies: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a reply; `prompt` holds the tokens of `conversation`."""

    prompt: Sequence[int]
    params: SamplingParams
    conversation: Conversation


class SamplerLost(ServiceLost):
    """The sampler's service died or stopped answering; the shard must be replayed."""


class NoReply(ValueError):
    """A scripted policy failed, or a chat service refuses: `NoReply("The policy my_file:policy
    returned 3 ...")`.
    """


class SamplerSession(ABC):
    """A sampler for one shard; with batches it waits for a request of each open branch."""

    @abstractmethod
    async def sample(self, request: Request) -> Sampled:
        """Sample a reply; raises SamplerLost.

        The last token is a stop token iff `finish` is "stop", and completes a stop string iff it is
        "stop_string".
        """

    def open(self) -> None:  # noqa: B027
        """Count a further branch of an episode."""

    def close(self) -> None:  # noqa: B027
        """Stop waiting for a branch or episode."""

    def waits_for_all(self, speaker: str) -> bool:
        """Whether a reply of this speaker begins only when every open branch has a request."""
        return False

    def continues(self, speaker: str) -> bool:
        """Whether a reply of this speaker may be sampled in two requests."""
        return True


class Sampler(Protocol):
    """Samples tokens from the newest loaded policy."""

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Load and check the weights of a policy directory; later replies have this `version`.

        `base` is the model directory of an adapter. A loaded version is kept. Raises SamplerLost.
        """

    def shard(self, episodes: int) -> AbstractAsyncContextManager[SamplerSession]:
        """A session for a shard of this many episodes, on the running event loop."""

    def rest(self) -> None:
        """Free the memory of GPUs shared with the learner until the next `load`.

        Raises SamplerLost.
        """
