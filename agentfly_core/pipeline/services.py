"""The warm services of a run: started once, kept over its steps, found again by their address."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfly_core.artifacts.store import Artifact
from agentfly_core.config.site import Site
from agentfly_core.inference.sampler import Sampler
from agentfly_core.models import adapter_artifact
from agentfly_core.pipeline.checkpointing import AsyncCheckpointer
from agentfly_core.rollout.event_loop import EnvironmentLoop, environment_loop
from agentfly_core.rollout.shard import LEASE_SECONDS
from agentfly_core.rollout.spec import kinds_of, limits_of
from agentfly_core.runs.run import ExperimentContext
from agentfly_core.system.service import Service, new_address, supervised
from agentfly_core.training import client

IN_PROCESS = Service("transformers", "")
_homes: dict[Service, EnvironmentLoop] = {}


@dataclass(frozen=True, slots=True)
class RolloutServices:
    """Where episodes are played: `RolloutServices(Service("vllm", "/tmp/agentfly-x1/vllm.sock"), Service(...))`."""

    sampler: Service
    environments: Service


@contextmanager
def rollout_services(context: ExperimentContext, model: Artifact, owner: str, logs: Path) -> Iterator[RolloutServices]:
    """The sampler and the environments of an experiment, starting; `owner` is the uid of the run they belong to."""
    with sampler_service(context, model, owner, logs) as sampler, environments_service(context, owner) as environments:
        yield RolloutServices(sampler, environments)


@contextmanager
def sampler_service(context: ExperimentContext, model: Artifact, owner: str, logs: Path) -> Iterator[Service]:
    """The sampler that the site asks for, starting; `owner` is the uid of the run that it belongs to."""
    if context.site.sampler == "transformers":
        yield IN_PROCESS
        return
    from agentfly_core.inference import vllm_client

    address = new_address("vllm")
    folder, base = adapter_artifact.folders(context.store, model)
    ranks = [shape.rank for shape in (context.science.adapter, adapter_artifact.shape_of(context.store, model)) if shape]
    command, environment = vllm_client.launch(address, base or folder, context.science, divided(context), max(ranks, default=0))
    with supervised("vllm", command, environment, address, logs / "vllm.log", owner) as service:
        yield service


@contextmanager
def environments_service(context: ExperimentContext, owner: str) -> Iterator[Service]:
    """The environments of an experiment, starting in this process, as many as a shard needs.

    When the block ends they are closed; raises RuntimeError for one that was lent and not given back.
    """
    service = Service("environments", owner)
    with environment_loop(limits_of(context.science)) as here:
        size = min(context.science.rollout.shard, context.science.rollout.problems * context.science.rollout.group_size)
        here.loop.call_soon_threadsafe(here.resources.warm, kinds_of(context.science), size, LEASE_SECONDS)
        _homes[service] = here
        try:
            yield service
        finally:
            del _homes[service]


@contextmanager
def learner_service(context: ExperimentContext, owner: str, logs: Path) -> Iterator[Service]:
    """The learner's workers, starting; at the end of the block what is being saved of them is waited for."""
    address = new_address("learner")
    command, environment = client.launch(str(address), divided(context))
    with supervised("learner", command, environment, address, logs / "learner.log", owner) as service:
        try:
            yield service
        finally:
            checkpointer(service).wait()


def divided(context: ExperimentContext) -> Site:
    """The site as the sampler's and the learner's services are to take it.

    On CPU each has half of the threads where both work at the same time. With all of them a step of SmolLM2-135M on two
    cores took 12.2 to 13.4 s instead of 9.9 to 10.6 s.
    """
    together = context.science.rollout.max_staleness > 0 and context.site.device == "cpu"
    return context.site.model_copy(update={"threads": max(1, context.site.threads // 2)}) if together else context.site


def sampler_at(service: Service, context: ExperimentContext, policy: Artifact, version: int) -> Sampler:
    """The sampler behind a service, with a policy loaded whose tokens are labelled `version`; raises SamplerLost."""
    sampler = _sampler(service, context.science.dtype, context.site)
    folder, base = adapter_artifact.folders(context.store, policy)
    sampler.load(folder, version, base)
    return sampler


def rest(service: Service, context: ExperimentContext) -> None:
    """Have the sampler behind a service make room for the learner where they share GPUs; raises SamplerLost."""
    _sampler(service, context.science.dtype, context.site).rest()


def environment_loop_of(service: Service) -> EnvironmentLoop:
    """Where the environments behind a service live, which is in this process."""
    return _homes[service]


@functools.cache
def checkpointer(service: Service) -> AsyncCheckpointer:
    """The learner behind a service, with what is being saved of it."""
    return AsyncCheckpointer(client.DeepSpeedLearner(service))


@functools.cache
def tokenizer_of(policy: Path) -> Any:
    """The tokenizer of a policy directory."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(policy, trust_remote_code=False)


@functools.cache
def _sampler(service: Service, dtype: str, site: Site) -> Sampler:
    if service == IN_PROCESS:
        from agentfly_core.inference.in_process import TransformersSampler

        return TransformersSampler(f"cuda:{site.sampler_gpus[0]}" if site.sampler_gpus else "cpu", dtype)
    from agentfly_core.inference import vllm_client

    return vllm_client.VLLM(service, dtype, site.concurrency, takes_turns=site.shares_gpus)
