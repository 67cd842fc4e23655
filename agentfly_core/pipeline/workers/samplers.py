"""Make the samplers of the trained policy, and of speakers (participants) that are not trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.config.import_path import load
from agentfly_core.config.parts import SELF
from agentfly_core.config.reference import EndpointPolicy, RunPolicy, SpeakerReference
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.templates.model import reply_tokens
from agentfly_core.models import adapter_artifact
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.rollout.rules import Frozen, FrozenEndpoint, FrozenPolicy, FrozenSelf
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.service import Service

if TYPE_CHECKING:
    from agentfly_core.inference.endpoints.chat_service import ChatService

ENDPOINT_FILE = "endpoint.json"
"""A file in the folder of a policy. It contains the name of a chat service that is used as the
policy.
"""


@dataclass(frozen=True)
class Samplers:
    """The samplers of an experiment: `Samplers(experiment, endpoint_of(store, model))`.

    `endpoint` is the name of the chat service that is used as the policy. It is "" if the policy
    has its own weights.
    """

    experiment: Experiment
    endpoint: str

    @cached_property
    def chats(self) -> dict[str, ChatService]:
        """The chat services that reply for the policy or for untrained roles of the agent, by name.

        Each service has its own limits on the number of requests and tokens.
        """
        speakers = self.experiment.settings.agent.speakers.values()
        frozen = {who.name for who in speakers if isinstance(who, EndpointPolicy)}
        names = {name for name in (*frozen, self.endpoint) if name}
        if not names:
            return {}
        from agentfly_core.inference.endpoints.chat_service import ChatService  # loads aiohttp

        site, store = self.experiment.site, self.experiment.store
        return {name: ChatService(name, site.endpoint(name), store) for name in names}

    @contextmanager
    def server(self, model: Pointer, owner: str, logs: Path) -> Iterator[str]:
        """Start the sampler server of the site. It is stopped at the end of the `with` block.

        The server can load `model` and the policies that are trained from it. Yields the address of
        the server, or "" if the policy needs no server.
        """
        settings, site = self.experiment.settings, self.experiment.divided_site
        if self.endpoint or site.sampler == "transformers":
            yield ""
            return
        from agentfly_core.inference import vllm_server

        store = self.experiment.store
        folder, base = adapter_artifact.folders(store, model)
        adapters = (settings.adapter, adapter_artifact.shape_of(store, model))
        # vLLM reserves memory for the largest rank when it starts
        rank = max((adapter.rank for adapter in adapters if adapter), default=0)
        with vllm_server.served(
            base or folder, settings.dtype, settings.agent, site, logs, owner, rank
        ) as service:
            yield service.address

    def served(self, address: str) -> Sampler:
        """Return a sampler that uses the server at `address`."""
        from agentfly_core.inference.vllm_client import VLLM  # loads aiohttp
        from agentfly_core.inference.vllm_server import KIND

        site, dtype = self.experiment.site, self.experiment.settings.dtype
        return VLLM(Service(KIND, address), dtype, site.concurrency, takes_turns=site.shares_gpus)

    def here(self, tokenizer: PreTrainedTokenizerBase) -> Sampler:
        """Return the sampler of a policy that needs no sampler server.

        If the policy is a chat service, the sampler requests replies from this service.
        Otherwise, the sampler runs the policy's model in this process.
        """
        if not self.endpoint:
            return self._in_process()
        from agentfly_core.inference.endpoint import EndpointSampler  # loads aiohttp

        own = self.experiment.settings.template.make(tokenizer=tokenizer)
        return EndpointSampler(self.chats[self.endpoint], partial(reply_tokens, own, tokenizer))

    def frozen(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Frozen]:
        """Return the policy or chat service that replies for each untrained role of the agent.

        A role can use the policy of an earlier run, a chat service, or the same policy as the
        trained roles. Raises ValueError if a policy is missing, has changed, or has another
        tokenizer.
        """
        self.experiment.require_speakers_unchanged()
        agent = self.experiment.settings.agent
        speakers, loaded = agent.speakers, dict[SpeakerReference, Frozen]()
        for role, who in speakers.items():
            if isinstance(who, EndpointPolicy):
                loaded[who] = FrozenEndpoint(str(who), self.chats[who.name])
            elif who not in loaded:
                loaded[who] = self._frozen_policy(f"agent.frozen.{role}", who, tokenizer)
        own = {role: FrozenSelf(SELF) for role in agent.untrained}
        return {**own, **{role: loaded[who] for role, who in speakers.items()}}

    def _frozen_policy(
        self, key: str, who: RunPolicy, tokenizer: PreTrainedTokenizerBase
    ) -> FrozenPolicy:
        store = self.experiment.store
        policy = of_run(store, who, key).policy
        if _written(tokenizer_of(store, policy)) != _written(tokenizer):
            raise ValueError(
                f"{key}: the tokenizer of {who} differs from the tokenizer of `model`. Name a run "
                f"that started from `model`. Or train the model from which {who.run} started: "
                f"model=run:{who.run}@0."
            )
        folder, base = adapter_artifact.folders(store, policy)
        sampler = self._in_process()
        sampler.load(folder, who.step, base)
        return FrozenPolicy(str(who), sampler)

    def _in_process(self) -> Sampler:
        from transformers import utils

        # otherwise transformers imports scikit-learn for a method of decoding that is not used
        # here, which takes a second and 64 MiB of memory
        utils.is_sklearn_available = lambda: False  # type: ignore[attr-defined]
        from agentfly_core.inference.in_process import TransformersSampler  # loads torch

        site = self.experiment.divided_site
        device = f"cuda:{site.sampler_gpus[0]}" if site.sampler_gpus else "cpu"
        return TransformersSampler(device, self.experiment.settings.dtype, site.threads)


def _written(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a tokenizer as text, including its normalizer. Equal tokenizers give equal texts."""
    # templates refuse tokenizers that do not belong to the library `tokenizers`
    return str(tokenizer.backend_tokenizer.to_str())


def endpoint_of(store: Store, policy: Pointer) -> str:
    """Return the name of the chat service that gives the replies of this policy.

    Returns "" if the policy has its own weights.
    """
    endpoint = store.part(policy, ENDPOINT_FILE)
    return str(endpoint["name"]) if endpoint else ""


def tokenizer_of(store: Store, policy: Pointer) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a policy."""
    from transformers import AutoTokenizer  # loads torch

    folder = store.open(policy)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, trust_remote_code=False
    )
    return tokenizer


def class_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the import path of a tokenizer's class.

    Example: "transformers.models.qwen2...:Qwen2Tokenizer".
    """
    return f"{type(tokenizer).__module__}:{type(tokenizer).__qualname__}"


def tokenizer_like(path: str, folder: Path) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder. `path` is the import path of its class.

    AutoTokenizer is not used, because it would also load torch.
    """
    kind: type[PreTrainedTokenizerBase] = load(path)
    tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(folder, trust_remote_code=False)
    return tokenizer
