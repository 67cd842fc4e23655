"""Entropies of sampled tokens: exact in process, estimated from the likeliest tokens of vLLM."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.vllm_client import entropy
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.training.policy import load_policy
from tests.support.learner_jobs import DEVICE


def requests(temperature: float = 1.0) -> list[Request]:
    """Prompts of 3 to 10 tokens."""
    params = SamplingParams(temperature, 12, (2, 3))
    conversations = [Conversation(Problem("p", "?"), chain, 0, (), (), chain) for chain in range(8)]
    return [Request([*range(5, 8 + one.chain)], params, one) for one in conversations]


async def played(sampler: TransformersSampler, batch: Sequence[Request]) -> list[Sampled]:
    async with sampler.shard(len(batch)) as session:
        return list(await asyncio.gather(*map(session.sample, batch)))


async def test_entropies_in_process_are_those_of_the_learner(nano: Path) -> None:
    sampler = TransformersSampler(DEVICE)
    sampler.load(nano, 3)
    plain = requests(temperature=0.7)
    asking = [replace(one, params=replace(one.params, entropies=True)) for one in plain]
    for one, span in zip(asking, await played(sampler, asking), strict=True):
        tokens = torch.tensor([[*one.prompt, *span.tokens]])
        sampled = torch.arange(tokens.shape[1])[None] >= len(one.prompt)
        exact = load_policy(str(nano), "float32")(tokens, sampled, 0.7)[1][sampled]
        assert span.entropies == pytest.approx(exact.tolist(), abs=1e-5)


async def test_a_request_for_entropies_changes_no_token(nano: Path) -> None:
    sampler = TransformersSampler(DEVICE)
    sampler.load(nano, 3)
    plain = requests()
    # in one batch with rows that do not ask
    asking = [replace(one, params=replace(one.params, entropies=True)) for one in plain[:4]]
    before, after = await played(sampler, plain), await played(sampler, [*asking, *plain[4:]])
    assert [replace(span, entropies=()) for span in after] == before
    assert [len(span.entropies) for span in after[4:]] == [0] * 4


def test_an_estimate_is_exact_where_all_tokens_are_listed() -> None:
    assert entropy([math.log(0.5)] * 2) == pytest.approx(math.log(2))
    assert entropy([0.0]) == 0


def test_all_other_tokens_count_as_one() -> None:
    # 0.5, 0.25 and a rest of 0.25
    assert entropy([math.log(0.5), math.log(0.25)]) == pytest.approx(1.5 * math.log(2))
