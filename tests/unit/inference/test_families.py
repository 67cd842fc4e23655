"""Each family of models: the sampler in this process and the learner agree."""

import asyncio
from pathlib import Path

import pytest
import torch

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.training.policy import load_policy
from tests.support.learner_jobs import DEVICE
from tests.support.model_families import FAMILIES, stored

STOPS = tuple(range(2, 60))


def request(chain: int) -> Request:
    """A prompt of 3 to 38 tokens, shorter and longer than a window of 8."""
    prompt = range(60, 63 + 7 * chain)
    conversation = Conversation(Problem("p", "?"), chain, 0, (), (), seed=100 + chain)
    return Request(tuple(prompt), SamplingParams(1.0, 24, STOPS), conversation)


async def played(sampler: TransformersSampler, batch: list[Request]) -> list[Sampled]:
    async with sampler.shard(len(batch)) as session:
        return list(await asyncio.gather(*map(session.sample, batch)))


@pytest.mark.parametrize("family", FAMILIES)
async def test_sampled_logprobs_equal_the_learners(family: str, nano: Path, tmp_path: Path) -> None:
    policy = stored(family, tmp_path, nano)
    sampler = TransformersSampler(DEVICE)
    sampler.load(policy, 0)
    batch = [request(chain) for chain in range(6)]
    replies = await played(sampler, batch)
    assert len({len(reply.tokens) for reply in replies}) > 2, "rows end at different lengths"
    learner = load_policy(str(policy), "float32")
    for one, reply in zip(batch, replies, strict=True):
        tokens = torch.tensor([[*one.prompt, *reply.tokens]])
        sampled = torch.arange(tokens.shape[1])[None] >= len(one.prompt)
        with torch.no_grad():
            logprobs = learner(tokens, sampled, 1.0)[0][sampled]
        torch.testing.assert_close(logprobs, torch.tensor(reply.logprobs), atol=1e-4, rtol=0)
