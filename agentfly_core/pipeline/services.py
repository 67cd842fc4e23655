"""Live services of a session, started once and handed to stages."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.authoring.event_loop import run
from agentfly_core.authoring.injection import kinds_needed
from agentfly_core.config.parts import Part
from agentfly_core.config.reference import EndpointPolicy, RunPolicy, SpeakerReference
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.experiment.task import Task, template_of
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.templates.model import writer
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.models import adapter_artifact
from agentfly_core.models.model_config import require_trainable
from agentfly_core.pipeline.workers.job import JobPlayer
from agentfly_core.pipeline.workers.local import LocalPlayer, LocalServices
from agentfly_core.pipeline.workers.pool import (
    OwnSamplers,
    ServedSampler,
    WorkerPool,
    address_of,
    setup_of,
    worker_processes,
)
from agentfly_core.rollout.resources import ResourceManager, resources_for
from agentfly_core.rollout.rules import Frozen, FrozenEndpoint, FrozenPolicy
from agentfly_core.rollout.shard import LEASE_SECONDS
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.service import Service, new_address, supervised
from agentfly_core.training import client
from agentfly_core.training.checkpointing import AsyncCheckpointer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentfly_core.inference.endpoints.chat_service import ChatService
    from agentfly_core.inference.vllm_client import VLLM


ENDPOINT_FILE = "endpoint.json"
"""File with the name of a chat service that is used as a policy."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RolloutServices:
    """The player of a session: `RolloutServices(LocalPlayer(...))`."""

    player: JobPlayer

    def rest(self) -> None:
        """Release the GPU memory of samplers for the learner; raises SamplerLost."""
        self.player.rest()


@dataclass(frozen=True, slots=True)
class TrainingServices(RolloutServices):
    """The player and the learner of a session."""

    learner: AsyncCheckpointer


@contextmanager
def training_services(
    experiment: Experiment, model: Pointer, owner: str, logs: Path, scripted: bool = False
) -> Iterator[TrainingServices]:
    """Start the services of training; `owner` is the uid of their run.

    A warm start alone is `scripted`: it serves no sampler.
    """
    store, site = experiment.store, experiment.divided_site
    shares = experiment.settings.update.share_prefixes
    with (
        rollout_services(experiment, model, owner, logs, scripted) as playing,
        learner_service(store, model, shares, site, owner, logs) as learner,
    ):
        yield TrainingServices(playing.player, learner)


@contextmanager
def rollout_services(
    experiment: Experiment, model: Pointer, owner: str, logs: Path, scripted: bool = False
) -> Iterator[RolloutServices]:
    """Start the site's sampler, for `model` and policies trained from it, and the site's workers.

    With `scripted` the sampler is in the process that plays. Raises ValueError for a frozen speaker
    that is missing or has other tokens.
    """
    store, settings, site = experiment.store, experiment.settings, experiment.divided_site
    chats = chat_services(store, site, settings.agent.speakers, endpoint_of(store, model))
    sampling: AbstractContextManager[Sampler] = (
        nullcontext(local_sampler(store, settings.template, settings.dtype, site, model, chats))
        if scripted
        else sampler_service(experiment, model, owner, logs, chats)
    )
    with sampling as sampler, ExitStack() as stack:
        if not site.workers:
            player = stack.enter_context(local_player(experiment, model, sampler, chats))
            yield RolloutServices(player)
            return
        experiment.require_speakers_unchanged()
        address = address_of(sampler, site)
        setup = setup_of(experiment, model, address)
        policies = ServedSampler(sampler, store) if address else OwnSamplers()
        budgets = {name: chat.budget for name, chat in chats.items()}
        processes = stack.enter_context(worker_processes(setup, site.workers, budgets, owner, logs))
        yield RolloutServices(WorkerPool(store, policies, processes))


@contextmanager
def local_player(
    experiment: Experiment, model: Pointer, sampler: Sampler, chats: Mapping[str, ChatService]
) -> Iterator[LocalPlayer]:
    """Start environments and frozen speakers in this process; they play with a sampler."""
    store, settings, site = experiment.store, experiment.settings, experiment.divided_site
    with environments_here(experiment.whole) as resources:
        tokenizer = tokenizer_of(store, model)
        experiment.require_speakers_unchanged()
        speakers = settings.agent.speakers
        frozen = frozen_speakers(store, speakers, site, settings.dtype, tokenizer, chats)
        yield LocalPlayer(experiment, LocalServices(sampler, resources, tokenizer, frozen))


@contextmanager
def sampler_service(
    experiment: Experiment, model: Pointer, owner: str, logs: Path, chats: Mapping[str, ChatService]
) -> Iterator[Sampler]:
    """Start the sampler of the site, or use the chat service of `model`."""
    if endpoint_of(experiment.store, model) or experiment.site.sampler == "transformers":
        store, settings = experiment.store, experiment.settings
        site, template = experiment.divided_site, settings.template
        yield local_sampler(store, template, settings.dtype, site, model, chats)
        return
    from agentfly_core.inference import vllm_server

    settings, site, address = experiment.settings, experiment.divided_site, new_address("vllm")
    folder, base = adapter_artifact.folders(experiment.store, model)
    adapters = (settings.adapter, adapter_artifact.shape_of(experiment.store, model))
    rank = max((adapter.rank for adapter in adapters if adapter), default=0)
    command, environment = vllm_server.launch(
        address, base or folder, settings.dtype, settings.agent, site, rank
    )
    with supervised("vllm", command, environment, address, logs / "vllm.log", owner) as service:
        yield vllm_sampler(service, settings.dtype, experiment.site)


def vllm_sampler(service: Service, dtype: str, site: Site) -> VLLM:
    """The sampler of a vLLM server."""
    from agentfly_core.inference.vllm_client import VLLM  # loads aiohttp

    return VLLM(service, dtype, site.concurrency, takes_turns=site.shares_gpus)


def local_sampler(
    store: Store,
    template: Part,
    dtype: str,
    site: Site,
    model: Pointer,
    chats: Mapping[str, ChatService],
) -> Sampler:
    """The sampler without a server, or of the chat service that is used as `model`."""
    if not (name := endpoint_of(store, model)):
        return in_process(site, dtype)
    from agentfly_core.inference.endpoint import EndpointSampler  # loads aiohttp

    tokenizer = tokenizer_of(store, model)
    own = template_of(template, tokenizer)
    return EndpointSampler(chats[name], reply_encoder(tokenizer), own.stop_tokens[0], writer(own))


@contextmanager
def environments_here(task: Task) -> Iterator[ResourceManager]:
    """Start the environments of an experiment in this process, as many as a shard needs.

    Raises RuntimeError for an environment still in use at the end of the block.
    """
    rollout = task.settings.rollout
    size = min(rollout.shard, rollout.problems * rollout.group_size)
    with resources_for(task.limits) as resources:
        run(resources.warmed(kinds_needed(task.parts), size, LEASE_SECONDS))
        yield resources


@contextmanager
def learner_service(
    store: Store, model: Pointer, share_prefixes: bool, site: Site, owner: str, logs: Path
) -> Iterator[AsyncCheckpointer]:
    """Start the learner; the end of the block waits for its last save. Raises ValueError for a
    model that cannot be trained.
    """
    if config := adapter_artifact.config_of(store, model):
        require_trainable(config, share_prefixes)
    address = new_address("learner")
    command, environment = client.launch(str(address), site)
    with supervised(
        "learner", command, environment, address, logs / "learner.log", owner
    ) as service:
        checkpointer = AsyncCheckpointer(client.DeepSpeedLearner(service))
        try:
            yield checkpointer
        finally:
            checkpointer.wait()


def chat_services(
    store: Store, site: Site, speakers: Mapping[str, SpeakerReference], *policies: str
) -> dict[str, ChatService]:
    """Chat services of frozen speakers and `policies` by name; all callers share a budget."""
    frozen = {who.name for who in speakers.values() if isinstance(who, EndpointPolicy)}
    names = {name for name in (*frozen, *policies) if name}
    if not names:
        return {}
    from agentfly_core.inference.endpoints.chat_service import ChatService  # loads aiohttp

    return {name: ChatService(name, site.endpoint(name), store) for name in names}


def frozen_speakers(
    store: Store,
    speakers: Mapping[str, SpeakerReference],
    site: Site,
    dtype: str,
    tokenizer: PreTrainedTokenizerBase,
    chats: Mapping[str, ChatService],
) -> dict[str, Frozen]:
    """Frozen speakers by role; each policy is loaded into a sampler of its own.

    Raises ValueError for a missing policy, and for other tokens than `tokenizer`.
    """
    loaded = dict[SpeakerReference, Frozen]()
    for role, who in speakers.items():
        if isinstance(who, EndpointPolicy):
            loaded[who] = FrozenEndpoint(str(who), chats[who.name])
        elif who not in loaded:
            key = f"agent.frozen.{role}"
            loaded[who] = _frozen_policy(store, key, who, in_process(site, dtype), tokenizer)
    return {role: loaded[who] for role, who in speakers.items()}


def _frozen_policy(
    store: Store, key: str, who: RunPolicy, sampler: Sampler, tokenizer: PreTrainedTokenizerBase
) -> FrozenPolicy:
    policy = of_run(store, who, key).policy
    if _written(tokenizer_of(store, policy)) != _written(tokenizer):
        raise ValueError(
            f"{key}: {who} has other tokens than the model that it would speak with. Name a run of "
            f"this model, or start from one of its: model=run:{who.run}@0."
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


def in_process(site: Site, dtype: str) -> Sampler:
    """The sampler without a server."""
    from agentfly_core.inference.in_process import TransformersSampler

    device = f"cuda:{site.sampler_gpus[0]}" if site.sampler_gpus else "cpu"
    return TransformersSampler(device, dtype, site.threads)


def tokenizer_of(store: Store, policy: Pointer) -> PreTrainedTokenizerBase:
    """The tokenizer of a policy."""
    from transformers import AutoTokenizer

    folder = store.open(policy)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, trust_remote_code=False
    )
    return tokenizer
