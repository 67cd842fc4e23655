"""The warm services of a run: started once, kept over its steps, found again by their address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfly_core.learners.deepspeed import deepspeed_service
from agentfly_core.run import Lab
from agentfly_core.samplers.vllm import vllm_service
from agentfly_core.service import Service
from agentfly_core.store import Artifact

IN_PROCESS = Service("transformers", "")


@contextmanager
def sampler_service(lab: Lab, model: Artifact, owner: str, logs: Path) -> Iterator[Service]:
    """The sampler that the site asks for, starting; `owner` is the uid of the run that it belongs to."""
    if lab.site.sampler == "transformers":
        yield IN_PROCESS
        return
    with vllm_service(
        lab.store.open(model), lab.science, lab.site, _socket("vllm"), logs / "vllm.log", owner
    ) as service:
        yield service


@contextmanager
def learner_service(lab: Lab, owner: str, logs: Path) -> Iterator[Service]:
    """The learner's workers, starting."""
    with deepspeed_service(lab.site, _socket("learner"), logs / "learner.log", owner) as service:
        yield service
