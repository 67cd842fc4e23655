"""The sampler interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Sampled
from agentfly_core.system.service import ServiceLost

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling settings: `SamplingParams(1.0, max_tokens=32, stop_tokens=(2,), stop=("\\n\\n",))`.

    `temperature=0` is greedy. There is no top-k, top-p or penalty, because they would change the
    probabilities that training uses. A reply ends with the token that completes a string of `stop`.
    With `entropies`, a reply has the entropy of each token's distribution, see `Sampled`.
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


@dataclass(frozen=True, slots=True, eq=False)
class HiddenStates:
    """Hidden states of a policy at the last token of a prompt.

    `values` [layers, width] are in the order of `layers`. Layer 0 is the embedding, layer i the
    output of block i. The last output is normalised. `policy` is a digest of its weights.
    """

    layers: tuple[int, ...]
    values: NDArray[float32]
    policy: str


class SamplerLost(ServiceLost):
    """The sampler's service died or stopped answering; the shard must be replayed."""


class NoReply(ValueError):
    """A scripted policy failed, or a chat service refused a request: `NoReply("The policy
    my_file:policy returned 3 ...")`.
    """


class SamplerSession(ABC):
    """A sampler for one shard. If it samples in batches, it waits until all branches that are
    running have requested a reply.
    """

    @abstractmethod
    async def sample(self, request: Request) -> Sampled:
        """Sample a reply; raises SamplerLost.

        `finish` is "stop" if the last token is a stop token, and "stop_string" if the last token
        completes a stop string.
        """

    async def hidden(
        self, prompt: Sequence[int], layers: Sequence[int] | None, speaker: str
    ) -> HiddenStates:
        """Return the hidden states of a speaker's policy at a prompt's last token.

        Samplers without hidden states raise NoReply.
        """
        raise NoReply(
            f"Hidden states of the speaker {speaker!r} cannot be read: its replies come from a "
            "script, a chat service or vLLM. Play a policy with AGENTFLY_SAMPLER=transformers."
        )

    def open(self) -> None:  # noqa: B027
        """Count one more branch of an episode."""

    def close(self) -> None:  # noqa: B027
        """Stop waiting for requests of a branch or episode."""

    def waits_for_all(self, speaker: str) -> bool:
        """Whether this speaker's replies wait until all running branches have requested a reply."""
        return False

    def continues(self, speaker: str) -> bool:
        """Whether a reply of this speaker may be sampled in two requests, as a thinking budget
        needs.
        """
        return True


class Sampler(Protocol):
    """Samples tokens from the newest loaded policy."""

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Load and check the weights of a policy directory; later replies have this `version`.

        `base` is the model directory of an adapter. A version that is already loaded is not loaded
        again. Raises SamplerLost.
        """

    def shard(self, episodes: int) -> AbstractAsyncContextManager[SamplerSession]:
        """Open a session for a shard of this many episodes, on the running event loop."""

    def rest(self) -> None:
        """Free the memory of GPUs that the learner also uses, until the next `load`.

        Raises SamplerLost.
        """
