"""Each family of models: training that resumes, and vLLM that agrees with transformers."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.inference.vllm_server import launch
from agentfly_core.models import lora
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.service import Service, supervised
from agentfly_core.training.client import DeepSpeedLearner
from flows.__main__ import main
from tests.support import learner_jobs, model_families
from tests.support.generated_trajectories import crowd
from tests.support.model_families import FAMILIES, HYBRIDS

pytestmark = pytest.mark.long
PROMPT = tuple(range(60, 90))


@pytest.mark.parametrize("family", FAMILIES)
def test_training_resumes_with_equal_bytes(
    family: str, workers: Callable[..., Service], nano: Path, tmp_path: Path
) -> None:
    policy = model_families.stored(family, tmp_path, nano)
    job = learner_jobs.stored(tmp_path, policy, crowd(6, 4))
    update = learner_jobs.settings(mini_batches=2, share_prefixes=family not in HYBRIDS)
    learner = DeepSpeedLearner(workers(1))
    learner_jobs.going_on(learner, replace(job, update=update), tmp_path)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in HYBRIDS])
def test_vllm_equals_transformers(
    family: str, service_address: Callable[[str], Path], nano: Path, tmp_path: Path
) -> None:
    policy = model_families.stored(family, tmp_path, nano)
    settings = Settings.model_validate(
        {
            "model": str(policy),
            "data": {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 1, "test": 1},
            "agent": {"max_model_len": 128},
            "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
            "steps": 1,
        }
    )
    site = Site(sampler="vllm", vllm_memory_gib=0.125, concurrency=32)
    address = service_address("vllm")
    command, environment = launch(address, policy, settings.dtype, settings.agent, site)
    log = tmp_path / "vllm.log"
    with supervised("vllm", command, environment, address, log, "families") as service:
        vllm = VLLM(service, settings.dtype, site.concurrency)
        vllm.load(policy, 0)
        tokens, logprobs = sampled(vllm)
    with torch.no_grad():
        model = lora.load(policy, None, "float32").eval()
        logits = model(torch.tensor([[*PROMPT, *tokens]])).logits[0, len(PROMPT) - 1 : -1]
    expected = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-4, rtol=0)


def sampled(vllm: VLLM) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Tokens and log-probabilities of a reply of 64 tokens, longer than a window."""

    async def play() -> tuple[tuple[int, ...], tuple[float, ...]]:
        conversation = Conversation(Problem("p", "?"), 0, 0, (), (), seed=7)
        request = Request(PROMPT, SamplingParams(1.0, 64, ()), conversation)
        async with vllm.shard(1) as session:
            reply = await session.sample(request)
        return reply.tokens, reply.logprobs

    return asyncio.run(play())


@pytest.mark.usefixtures("service_address")
def test_the_command_admits_a_model_with_all_samplers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admit", "nano:calculator"]) == 0
    printed = capsys.readouterr().out
    assert "ok  sampler vLLM" in printed
    assert printed.endswith("nano:calculator can be trained on this machine.\n")
