"""The sampler in this process: batches that depend on no clock, and log-probabilities that the
learner agrees with.
"""

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.experiment import Adapter
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.models import lora
from agentfly_core.models.pretrained import materialise
from agentfly_core.models.probe import Probe, WrongWeights
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.training.policy import load_policy
from tests.support.learner_jobs import DEVICE
from tests.support.policies import probed

STOPS = tuple(range(2, 60))  # an untrained model stops soon, each row at another length


def request(
    chain: int, prompt: Sequence[int], temperature: float = 1.0, max_tokens: int = 12
) -> Request:
    return Request(
        prompt,
        SamplingParams(temperature, max_tokens, STOPS),
        Conversation(Problem("p", "?"), chain, 0, (), (), seed=100 + chain),
    )


def requests(temperature: float = 1.0) -> list[Request]:
    """Prompts of 3 to 10 tokens."""
    return [request(chain, list(range(5, 8 + chain)), temperature) for chain in range(8)]


async def played(sampler: TransformersSampler, batch: Sequence[Request]) -> list[Sampled]:
    async with sampler.shard(len(batch)) as session:
        return list(await asyncio.gather(*(session.sample(one) for one in batch)))


@pytest.fixture
def sampler(nano: Path) -> TransformersSampler:
    sampler = TransformersSampler(DEVICE)
    sampler.load(nano, 3)
    return sampler


def learner_logprobs(
    policy: Path, request: Request, got: Sampled, base: Path | None
) -> torch.Tensor:
    tokens = torch.tensor([[*request.prompt, *got.tokens]])
    sampled = torch.arange(tokens.shape[1])[None] >= len(request.prompt)
    with torch.no_grad():
        return load_policy(str(policy), "float32", base=str(base) if base else None)(
            tokens, sampled, request.params.temperature
        )[0][sampled]


def next_token_logits(policy: Path, tokens: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(policy)(torch.tensor([tokens])).logits[0, -1]


def largest_deviation(
    policy: Path, batch: Sequence[Request], got: Sequence[Sampled], base: Path | None = None
) -> float:
    """The largest |importance weight - 1| at the first update."""
    return max(
        float(
            (learner_logprobs(policy, one, span, base) - torch.tensor(span.logprobs))
            .expm1()
            .abs()
            .max()
        )
        for one, span in zip(batch, got, strict=True)
    )


async def test_replies_have_a_policy_and_a_finish_reason(
    sampler: TransformersSampler,
) -> None:
    replies = await played(sampler, requests())
    assert {span.finish for span in replies} == {"stop", "length"}
    for one, span in zip(requests(), replies, strict=True):
        assert span.policy_version == 3
        assert len(span.tokens) == one.params.max_tokens or span.finish == "stop"
        assert (span.tokens[-1] in STOPS) == (span.finish == "stop")
        assert not set(STOPS) & set(span.tokens[:-1])


async def test_replies_do_not_depend_on_the_order_of_arrival(sampler: TransformersSampler) -> None:
    forwards = await played(sampler, requests())
    backwards = await played(sampler, requests()[::-1])
    assert forwards == backwards[::-1]


async def test_replies_depend_on_the_seed_of_their_row(sampler: TransformersSampler) -> None:
    same_prompt = [request(chain, [5, 6, 7]) for chain in range(4)]
    assert len({span.tokens for span in await played(sampler, same_prompt)}) == 4


async def test_decoding_uses_the_given_number_of_threads(
    nano: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    forward = LlamaForCausalLM.forward

    def counting(model: LlamaForCausalLM, *args: Any, **named: Any) -> Any:
        seen.append(torch.get_num_threads())
        return forward(model, *args, **named)

    monkeypatch.setattr(LlamaForCausalLM, "forward", counting)
    sampler = TransformersSampler(threads=2)
    sampler.load(nano, 3)
    await played(sampler, requests())
    torch.set_num_threads(1)  # new threads inherit this number
    assert {*seen} == {2}


async def test_importance_weights_of_the_nano_model_start_at_one(
    sampler: TransformersSampler, nano: Path
) -> None:
    batch = requests(temperature=0.7)
    assert largest_deviation(nano, batch, await played(sampler, batch)) < 1e-4


@pytest.mark.long
async def test_importance_weights_of_smollm2_start_at_one(smollm2: Path) -> None:
    sampler = TransformersSampler(DEVICE)
    sampler.load(smollm2, 0)
    batch = [
        request(chain, [1, 4093, 198, 1780, *range(300, 302 + 9 * chain)]) for chain in range(3)
    ]
    assert largest_deviation(smollm2, batch, await played(sampler, batch)) < 1e-3


@pytest.mark.slow
async def test_importance_weights_of_an_adapter_start_at_one(nano: Path, tmp_path: Path) -> None:
    model = lora.load(nano, None, "float32")
    lora.add(model, Adapter(rank=4), seed=1)
    for parameter in model.parameters():
        parameter.data += 0.05 * parameter.requires_grad
    model.save_pretrained(tmp_path)
    sampler = TransformersSampler(DEVICE)
    sampler.load(probed(tmp_path, nano), 1, nano)
    replies = await played(sampler, requests())
    assert largest_deviation(tmp_path, requests(), replies, nano) < 1e-4
    assert largest_deviation(nano, requests(), replies) > 0.1


async def test_temperature_zero_is_greedy(sampler: TransformersSampler, nano: Path) -> None:
    (span,) = await played(sampler, [request(0, [5, 6, 7], temperature=0.0)])
    tokens = [5, 6, 7]
    for token in span.tokens:
        assert token == int(next_token_logits(nano, tokens).argmax())
        tokens.append(token)


async def test_generation_settings_of_the_model_are_ignored(nano: Path, tmp_path: Path) -> None:
    poisoned = Path(shutil.copytree(nano, tmp_path / "poisoned"))
    settings = {
        "do_sample": True,
        "top_k": 1,
        "temperature": 0.1,
        "repetition_penalty": 5.0,
        "max_length": 4,
    }
    (poisoned / "generation_config.json").write_text(json.dumps(settings))
    clean, dirty = TransformersSampler(DEVICE), TransformersSampler(DEVICE)
    clean.load(nano, 0)
    dirty.load(poisoned, 0)
    assert await played(clean, requests()) == await played(dirty, requests())


@pytest.mark.slow
async def test_sampling_follows_the_probabilities(sampler: TransformersSampler, nano: Path) -> None:
    """Each token's share of 4,000 draws is within 5 standard deviations of its probability."""
    count = 4_000
    many = [request(chain, [5, 6, 7], max_tokens=1) for chain in range(count)]
    tokens = torch.tensor([span.tokens[0] for span in await played(sampler, many)])
    expected = next_token_logits(nano, [5, 6, 7]).softmax(0)
    shares = torch.bincount(tokens, minlength=len(expected)) / count
    assert (
        (shares - expected).abs() <= 5 * (expected * (1 - expected) / count).sqrt() + 1e-4
    ).all()


async def test_a_shard_continues_without_a_finished_episode(sampler: TransformersSampler) -> None:
    async with sampler.shard(2) as session:
        waiting = asyncio.create_task(session.sample(request(0, [5, 6, 7])))
        await asyncio.sleep(0)
        assert not waiting.done()
        session.close()
        assert (await waiting).tokens


async def test_a_cancelled_episode_is_not_decoded(sampler: TransformersSampler) -> None:
    alone = (await played(sampler, [request(1, [5, 6, 7])]))[0]
    async with sampler.shard(2) as session:
        cancelled = asyncio.create_task(session.sample(request(0, [5, 6])))
        await asyncio.sleep(0)
        cancelled.cancel()
        session.close()
        assert await session.sample(request(1, [5, 6, 7])) == alone


@pytest.mark.skipif(
    DEVICE == "cuda", reason="a token without a vector breaks the GPU context of this process"
)
async def test_an_error_in_decoding_reaches_every_waiting_episode(
    sampler: TransformersSampler,
) -> None:
    async with sampler.shard(2) as session:
        pending = [session.sample(request(0, [5, 6])), session.sample(request(1, [10**6]))]
        results = await asyncio.gather(*pending, return_exceptions=True)
    assert [type(result) for result in results] == [IndexError, IndexError]


def test_a_policy_with_missing_weights_is_refused(nano: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(nano, tmp_path / "broken"))
    weights = load_file(broken / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"model\.norm\.weight"):
        TransformersSampler(DEVICE).load(broken, 0)


def test_a_policy_that_differs_from_its_probe_is_refused(nano: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(nano, tmp_path / "changed"))
    weights = load_file(changed / "model.safetensors")
    weights["lm_head.weight"] *= 1.01
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WrongWeights, match=r"transformers loaded .* expected at most 0.0001"):
        TransformersSampler(DEVICE).load(changed, 0)


def test_a_policy_of_another_dtype_passes_its_probe(tmp_path: Path) -> None:
    materialise("nano:calculator", tmp_path, "bfloat16")
    TransformersSampler(DEVICE, "float32").load(tmp_path, 0)


def test_the_error_of_wrong_weights_names_the_learning_rate(tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text('{"tokens": [7, 8, 9], "logprobs": [-700.0, -900.0]}')
    (tmp_path / "config.json").write_text('{"dtype": "float32"}')
    with pytest.raises(WrongWeights, match=r"these weights.*-800.* update.learning_rate"):
        Probe.of(tmp_path).require((-700.0, -900.1), "float32", "vLLM", tmp_path)


def test_median_distances_above_5_hundredths_are_refused_in_bfloat16(tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text('{"tokens": [7, 8, 9, 4], "logprobs": [-1, -2, -3]}')
    (tmp_path / "config.json").write_text('{"dtype": "bfloat16"}')
    probe = Probe.of(tmp_path)
    probe.require((-1.04, -2.04, -9.0), "bfloat16", "vLLM", tmp_path)
    with pytest.raises(WrongWeights, match=r"median .*0\.06.* at most 0\.05"):
        probe.require((-1.06, -2.06, -3.0), "bfloat16", "vLLM", tmp_path)


async def test_new_weights_have_new_answers_and_their_version(
    sampler: TransformersSampler, nano: Path, tmp_path: Path
) -> None:
    before = await played(sampler, requests())
    changed = Path(shutil.copytree(nano, tmp_path / "changed"))
    weights = {
        name: weight * 1.5 for name, weight in load_file(changed / "model.safetensors").items()
    }
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    sampler.load(probed(changed), 4)
    after = await played(sampler, requests())
    assert {span.policy_version for span in after} == {4}
    assert largest_deviation(changed, requests(), after) < 1e-4
    assert [span.tokens for span in after] != [span.tokens for span in before]
