"""Samplers of policies, and frozen speakers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.config.reference import EndpointPolicy, RunPolicy, SpeakerReference
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.experiment.task import template_of
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.templates.model import writer
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.models import adapter_artifact
from agentfly_core.rollout.rules import Frozen, FrozenEndpoint, FrozenPolicy
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.service import Service, new_address, supervised

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentfly_core.inference.endpoints.chat_service import ChatService

Speakers = Mapping[str, SpeakerReference]
"""Frozen speakers by role."""
ENDPOINT_FILE = "endpoint.json"
"""File with the name of a chat service that is used as a policy."""
KIND = "vllm"


@contextmanager
def sampler_server(experiment: Experiment, model: Pointer, owner: str, logs: Path) -> Iterator[str]:
    """Start the site's server for `model` and policies trained from it; yields its address, which
    is empty if they need none.
    """
    store, settings, site = experiment.store, experiment.settings, experiment.divided_site
    if endpoint_of(store, model) or site.sampler == "transformers":
        yield ""
        return
    from agentfly_core.inference import vllm_server

    address = new_address(KIND)
    folder, base = adapter_artifact.folders(store, model)
    adapters = (settings.adapter, adapter_artifact.shape_of(store, model))
    rank = max((adapter.rank for adapter in adapters if adapter), default=0)
    command, environment = vllm_server.launch(
        address, base or folder, settings.dtype, settings.agent, site, rank
    )
    log = logs / f"{KIND}.log"
    with supervised(KIND, command, environment, address, log, owner) as service:
        yield service.address


def sampler_at(
    server: str, experiment: Experiment, model: Pointer, chats: Mapping[str, ChatService]
) -> Sampler:
    """The sampler of a server, of the chat service that is used as `model`, or of this process."""
    settings, site = experiment.settings, experiment.site
    if server:
        from agentfly_core.inference.vllm_client import VLLM  # loads aiohttp

        service, shares = Service(KIND, server), site.shares_gpus
        return VLLM(service, settings.dtype, site.concurrency, takes_turns=shares)
    if not (name := endpoint_of(experiment.store, model)):
        return in_process(experiment.divided_site, settings.dtype)
    from agentfly_core.inference.endpoint import EndpointSampler  # loads aiohttp

    tokenizer = tokenizer_of(experiment.store, model)
    own = template_of(settings.template, tokenizer)
    return EndpointSampler(chats[name], reply_encoder(tokenizer), own.stop_tokens[0], writer(own))


def in_process(site: Site, dtype: str) -> Sampler:
    """The sampler without a server."""
    from agentfly_core.inference.in_process import TransformersSampler

    device = f"cuda:{site.sampler_gpus[0]}" if site.sampler_gpus else "cpu"
    return TransformersSampler(device, dtype, site.threads)


def chat_services(
    store: Store, site: Site, speakers: Speakers, policy: str = ""
) -> dict[str, ChatService]:
    """Chat services of frozen speakers and of a policy by name; all callers share a budget."""
    frozen = {who.name for who in speakers.values() if isinstance(who, EndpointPolicy)}
    names = {name for name in (*frozen, policy) if name}
    if not names:
        return {}
    from agentfly_core.inference.endpoints.chat_service import ChatService  # loads aiohttp

    return {name: ChatService(name, site.endpoint(name), store) for name in names}


def frozen_speakers(
    experiment: Experiment, tokenizer: PreTrainedTokenizerBase, chats: Mapping[str, ChatService]
) -> dict[str, Frozen]:
    """Frozen speakers by role; each policy is loaded into a sampler of its own.

    Raises ValueError for a missing or changed policy, and for other tokens than `tokenizer`.
    """
    experiment.require_speakers_unchanged()
    speakers, site = experiment.settings.agent.speakers, experiment.divided_site
    loaded = dict[SpeakerReference, Frozen]()
    for role, who in speakers.items():
        if isinstance(who, EndpointPolicy):
            loaded[who] = FrozenEndpoint(str(who), chats[who.name])
        elif who not in loaded:
            sampler = in_process(site, experiment.settings.dtype)
            key = f"agent.frozen.{role}"
            loaded[who] = _frozen_policy(experiment.store, key, who, sampler, tokenizer)
    return {role: loaded[who] for role, who in speakers.items()}


def _frozen_policy(
    store: Store, key: str, who: RunPolicy, sampler: Sampler, tokenizer: PreTrainedTokenizerBase
) -> FrozenPolicy:
    policy = of_run(store, who, key).policy
    if _written(tokenizer_of(store, policy)) != _written(tokenizer):
        raise ValueError(
            f"{key}: {who} has other tokens than the trained model. Name a run of the trained "
            f"model, or train the model of this run: model=run:{who.run}@0."
        )
    folder, base = adapter_artifact.folders(store, policy)
    sampler.load(folder, who.step, base)
    return FrozenPolicy(str(who), sampler)


def _written(tokenizer: PreTrainedTokenizerBase) -> str:
    """Serialize a tokenizer, normalizer included."""
    from transformers import PreTrainedTokenizerFast

    if isinstance(tokenizer, PreTrainedTokenizerFast):
        return tokenizer.backend_tokenizer.to_str()
    return repr(tokenizer.get_vocab())  # a tokenizer written in Python


def endpoint_of(store: Store, policy: Pointer) -> str:
    """Return the name of a chat service used as a policy; "" for other policies."""
    endpoint = store.part(policy, ENDPOINT_FILE)
    return str(endpoint["name"]) if endpoint else ""


def tokenizer_of(store: Store, policy: Pointer) -> PreTrainedTokenizerBase:
    """The tokenizer of a policy."""
    from transformers import AutoTokenizer

    folder = store.open(policy)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, trust_remote_code=False
    )
    return tokenizer
