"""The interface of samplers, which sample replies from a policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Sampled

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling settings: `SamplingParams(1.0, max_tokens=32, stop_tokens=(2,), stop=("\\n\\n",))`.

    With `temperature=0`, decoding is greedy. Top-k, top-p and penalties are not supported, because
    they would change the probabilities that training uses. A reply ends with the token that
    completes one of the strings in `stop`. With `entropies`, a reply contains the entropy of each
    token's distribution; see `Sampled`.
    """

    temperature: float
    max_tokens: int
    stop_tokens: tuple[int, ...]
    stop: tuple[str, ...] = ()
    entropies: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a reply. `prompt` contains the tokens of `conversation`."""

    prompt: Sequence[int]
    params: SamplingParams
    conversation: Conversation


@dataclass(frozen=True, slots=True, eq=False)
class HiddenStates:
    """Hidden states of a policy at the last token of a prompt.

    `values` has the shape [layers, width]. Its rows are in the order of `layers`. Layer 0 is the
    embedding, and layer i is the output of block i. The output of the last block is normalised.
    `policy` is a digest of the policy's weights.
    """

    layers: tuple[int, ...]
    values: NDArray[float32]
    policy: str


class NoReply(ValueError):
    """A scripted policy failed, or a chat service refused a request.

    Example: `NoReply("The policy my_file:policy returned 3 ...")`.
    """


class SamplerSession(ABC):
    """A session in which the episodes of one shard request replies from a sampler.

    A shard contains episodes that run concurrently. An agent may run several branches, which
    request replies independently.

    - `waits_for_all`: whether the sampler waits until all running branches have requested a reply,
      to decode these replies as one batch
    - `continues`: whether a second request can continue a reply. Limits of the reasoning tokens
      need this.
    """

    waits_for_all: ClassVar[bool] = False
    continues: ClassVar[bool] = True

    @abstractmethod
    async def sample(self, request: Request) -> Sampled:
        """Sample a reply. Raises ServiceLost if the sampler dies.

        In the result, `finish` is "stop" if the last token is a stop token. It is "stop_string" if
        the last token completes a stop string, and "length" if the token limit ended the reply.
        """

    async def hidden(
        self, prompt: Sequence[int], layers: Sequence[int] | None, speaker: str
    ) -> HiddenStates:
        """Return the hidden states of a speaker's policy at the last token of a prompt.

        `layers` are indices of layers; None means all layers. Raises NoReply if the sampler does
        not support hidden states, and ValueError for an unknown layer.
        """
        raise NoReply(
            f"Hidden states of the speaker {speaker!r} cannot be read: the replies come from a "
            "function, a chat service or vLLM. Use a policy with weights, and set "
            "AGENTFLY_SAMPLER=transformers."
        )

    def open(self) -> None:  # noqa: B027
        """Record that one more branch (concurrent coroutine) of an episode is running.

        From now on, a sampler with `waits_for_all` also waits for a request of this branch before
        sampling a batch.
        """

    def close(self) -> None:  # noqa: B027
        """Record that a branch (concurrent coroutine) or an episode has ended.

        Later batches no longer wait for a request of this branch or episode.
        """

    def of(self, speaker: str) -> SamplerSession:
        """Return the session that samples the replies of a speaker."""
        return self


class Sampler(Protocol):
    """Samples tokens from the policy that was loaded last."""

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Load and check the weights in a policy directory. Later replies are labelled with
        `version`.

        If the policy is an adapter, `base` is the directory of its base model. A policy that is
        already loaded is not loaded again. Raises ServiceLost if the sampler dies.
        """

    def shard(self, episodes: int) -> AbstractAsyncContextManager[SamplerSession]:
        """Open a session for a shard (a batch of concurrent episodes). `episodes` is its size.

        Use the session only in the event loop in which it was opened.
        """

    def rest(self) -> None:
        """Free memory on GPUs that the sampler shares with the learner. Call `load` before the next
        request.

        Raises ServiceLost if the sampler has died.
        """
