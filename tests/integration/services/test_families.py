"""Each family of models: training resumes, and vLLM agrees with the sampler in this process."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request, Sampler, SamplingParams
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.inference.vllm_server import launch
from agentfly_core.models import lora
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.system.service import Service, supervised
from agentfly_core.training.client import DeepSpeedLearner
from flows.__main__ import main
from tests.support import learner_jobs, model_families
from tests.support.generated_trajectories import crowd
from tests.support.model_families import FAMILIES, HYBRIDS
from tests.support.vllm_logprobs import client_of, logprobs_of

pytestmark = pytest.mark.long
PROMPTS = tuple(tuple(range(begin, 90)) for begin in (60, 64, 75, 85))


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
def test_vllm_equals_the_sampler_in_this_process(
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
        in_process = TransformersSampler()
        in_process.load(policy, 0)
        with client_of(service) as client:
            for prompt, reply in zip(PROMPTS, sampled(in_process, 1.0), strict=True):
                theirs = logprobs_of(client, [*prompt, *reply.tokens])[len(prompt) - 1 :]
                assert reply.logprobs == pytest.approx(theirs, abs=1e-4, rel=0)
        for prompt, reply in zip(PROMPTS, sampled(vllm, 1.0), strict=True):
            expected = logits(policy, prompt, reply.tokens).log_softmax(-1)
            chosen = expected.gather(1, torch.tensor(reply.tokens)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(reply.logprobs), chosen, atol=1e-4, rtol=0)
        greedy = zip(PROMPTS, sampled(in_process, 0.0), sampled(vllm, 0.0), strict=True)
    for prompt, own, other in greedy:
        pairs = list(zip(own.tokens, other.tokens, strict=True))
        if unlike := [place for place, (one, two) in enumerate(pairs) if one != two]:
            first, second = logits(policy, prompt, own.tokens)[unlike[0]].topk(2).values
            assert first - second <= 1e-3


def logits(policy: Path, prompt: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """Logits of transformers before each of the tokens."""
    with torch.no_grad():
        model = lora.load(policy, None, "float32").eval()
        whole: Tensor = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    return whole


def sampled(sampler: Sampler, temperature: float) -> list[Sampled]:
    """Replies of 64 tokens, longer than a window, to PROMPTS."""

    async def play() -> list[Sampled]:
        params = SamplingParams(temperature, 64, ())
        requests = [
            Request(prompt, params, Conversation(Problem("p", "?"), chain, 0, (), (), seed=chain))
            for chain, prompt in enumerate(PROMPTS)
        ]
        async with sampler.shard(len(requests)) as session:
            return list(await asyncio.gather(*map(session.sample, requests)))

    return asyncio.run(play())


@pytest.mark.usefixtures("service_address")
def test_the_command_admits_a_model_with_all_samplers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admit", "nano:calculator"]) == 0
    printed = capsys.readouterr().out
    assert "ok  sampler vLLM" in printed
    assert printed.endswith("nano:calculator can be trained on this machine.\n")
