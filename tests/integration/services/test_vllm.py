"""vLLM samples from exactly the given policy, verifies it, and can die."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.experiment import Adapter, Settings
from agentfly_core.config.site import Site
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.vllm_client import MOST_LIKELY, VLLM, entropy
from agentfly_core.inference.vllm_server import BATCHED_TOKENS, launch
from agentfly_core.models import lora
from agentfly_core.models.probe import WrongWeights
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.system.service import ServiceLost, supervised
from agentfly_core.system.supervisor import ChildState
from tests.support.waiting import LIMIT

SCIENCE = Settings.model_validate(
    {
        "model": "nano:calculator",
        "data": {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 1, "test": 1},
        "agent": {"max_model_len": 128},
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "steps": 1,
    }
)
SITE = Site(sampler="vllm", vllm_memory_gib=0.125, concurrency=32)
PROMPT = (1, 87, 203, 4, 55, 9)
POISON = {
    "do_sample": False,
    "temperature": 0.0,
    "top_k": 1,
    "top_p": 0.01,
    "repetition_penalty": 9.0,
    "max_new_tokens": 1,
    "eos_token_id": list(range(300)),
}


@pytest.fixture(scope="module")
def policies(nano: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two policies with tied embeddings and a poisoned generation_config.json, unlike in every
    weight and its file.
    """
    one = policy(nano, tmp_path_factory.mktemp("one"), 1)
    return one, policy(nano, tmp_path_factory.mktemp("two"), 2, largest_file="1MB")


@pytest.fixture(scope="module")
def server(
    policies: tuple[Path, Path],
    service_address: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[VLLM]:
    """A vLLM server that was started on the first policy."""
    address = service_address("vllm")
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    command, environment = launch(
        address, policies[0], SCIENCE.dtype, SCIENCE.agent, SITE, adapter_rank=6
    )
    command.append("--enable-prompt-tokens-details")
    with supervised("vllm", command, environment, address, log, "test-vllm") as service:
        yield VLLM(service, SCIENCE.dtype, SITE.concurrency)


def policy(nano: Path, folder: Path, seed: int, largest_file: str = "1GB") -> Path:
    config = AutoConfig.from_pretrained(nano, tie_word_embeddings=True)
    model: Any = AutoModelForCausalLM.from_config(config)
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape, generator=draw) + (parameter.dim() == 1)
    model.save_pretrained(folder, max_shard_size=largest_file)
    (folder / "generation_config.json").write_text(json.dumps(POISON))
    tokens = list(range(40, 72))
    logprobs = expected(folder, tokens[:1], tokens[1:], 1.0).tolist()
    (folder / "probe.json").write_text(json.dumps({"tokens": tokens, "logprobs": logprobs}))
    return folder


def adapter(base: Path, folder: Path, seed: int) -> Path:
    """An adapter of rank 6 on a policy; no weight of it is 0."""
    model = lora.load(base, None, "float32")
    lora.add(model, Adapter(rank=6, alpha=12), seed)
    model.generation_config = GenerationConfig()  # the poisoned one cannot be saved
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(seed))
    model.save_pretrained(folder)
    tokens = list(range(40, 72))
    logprobs = expected(folder, tokens[:1], tokens[1:], 1.0, base).tolist()
    (folder / "probe.json").write_text(json.dumps({"tokens": tokens, "logprobs": logprobs}))
    return folder


@torch.inference_mode()
def expected(
    folder: Path,
    prompt: Sequence[int],
    tokens: Sequence[int],
    temperature: float,
    base: Path | None = None,
) -> Tensor:
    """Log-probabilities of `tokens` after `prompt`, computed with transformers."""
    model = lora.load(folder, base, "float32").eval()
    logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(tokens)[:, None])[
        :, 0
    ]


def conversation(seed: int) -> Conversation:
    return Conversation(Problem("a", "?"), 0, 0, (), (), seed)


def replies(
    server: VLLM,
    count: int,
    temperature: float = 1.0,
    stop: tuple[int, ...] = (),
    prompt: Sequence[int] = PROMPT,
    entropies: bool = False,
) -> list[Sampled]:
    async def play() -> list[Sampled]:
        params = SamplingParams(temperature, 12, stop, entropies=entropies)
        requests = [Request(prompt, params, conversation(2**62 + seed)) for seed in range(count)]
        async with server.shard(count) as session:
            return list(await asyncio.gather(*map(session.sample, requests)))

    return asyncio.run(play())


def furthest(
    folder: Path, replies: Sequence[Sampled], temperature: float = 1.0, base: Path | None = None
) -> float:
    """The largest distance of a reply's log-probability from transformers' own."""
    return max(
        float(
            (
                torch.tensor(reply.logprobs)
                - expected(folder, PROMPT, reply.tokens, temperature, base)
            )
            .abs()
            .max()
        )
        for reply in replies
    )


@pytest.mark.long
def test_logprobs_ignore_generation_config(server: VLLM, policies: tuple[Path, Path]) -> None:
    server.load(policies[0], 0)
    for temperature in (1.0, 0.7):
        drawn = replies(server, 24, temperature)
        assert furthest(policies[0], drawn, temperature) < 1e-4
        assert {(len(reply.tokens), reply.finish) for reply in drawn} == {(12, "length")}
        assert len({reply.tokens[0] for reply in drawn}) > 5


def test_greedy_replies_have_the_logprobs_of_temperature_1(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    server.load(policies[0], 0)
    drawn = replies(server, 4, 0.0)
    assert len({reply.tokens for reply in drawn}) == 1
    assert furthest(policies[0], drawn) < 1e-4


@pytest.mark.long
def test_entropies_are_estimated_from_the_likeliest_tokens(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    server.load(policies[0], 0)
    drawn = replies(server, 4, 0.7, entropies=True)
    model = lora.load(policies[0], None, "float32").eval()
    for reply in drawn:
        logits = model(torch.tensor([[*PROMPT, *reply.tokens]])).logits[0, len(PROMPT) - 1 : -1]
        logprobs = torch.log_softmax(logits / 0.7, -1)
        # the sampled token and the likeliest others
        listed = logprobs.scatter(1, torch.tensor(reply.tokens)[:, None], 0.0).topk(MOST_LIKELY)
        likeliest = logprobs.gather(1, listed.indices).tolist()
        estimates = [entropy(row) for row in likeliest]
        assert reply.entropies == pytest.approx(estimates, abs=1e-3)
        exact = torch.special.entr(logprobs.exp()).sum(-1)
        assert (torch.tensor(reply.entropies) < exact + 1e-3).all()


def test_the_last_token_is_a_stop_token_iff_the_reply_stopped(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    server.load(policies[0], 0)
    stop = tuple(range(50))
    drawn = replies(server, 24, stop=stop)
    assert {reply.finish for reply in drawn} == {"stop", "length"}
    for reply in drawn:
        assert (reply.tokens[-1] in stop) == (reply.finish == "stop")
        assert not set(reply.tokens[:-1]) & set(stop)
    assert furthest(policies[0], drawn) < 1e-4


def test_prompts_larger_than_a_batch_are_read_in_turn(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    server.load(policies[0], 0)
    prompts = [(first, *range(50, 140)) for first in range(40, 72)]
    assert sum(map(len, prompts)) > BATCHED_TOKENS

    async def play() -> list[Sampled]:
        params = SamplingParams(1.0, 12, ())
        requests = [
            Request(prompt, params, conversation(seed)) for seed, prompt in enumerate(prompts)
        ]
        async with server.shard(len(prompts)) as session:
            return list(await asyncio.gather(*map(session.sample, requests)))

    assert [len(reply.tokens) for reply in asyncio.run(play())] == [12] * 32


def test_a_cached_prompt_rereads_fewer_than_32_tokens(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    server.load(policies[0], 0)
    body = {"token_ids": [*range(140, 40, -1)], "sampling_params": {"max_tokens": 1}}
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=server.service.address), base_url="http://vllm"
    ) as client:
        first, again = (
            client.post("/inference/v1/generate", json=body, timeout=LIMIT).json() for _ in range(2)
        )
    assert [
        answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (first, again)
    ] == [
        0,
        96,
    ]


def test_replies_depend_on_the_seed(server: VLLM, policies: tuple[Path, Path]) -> None:
    server.load(policies[0], 0)
    drawn = replies(server, 8)
    assert replies(server, 8) == drawn
    assert len({reply.tokens for reply in drawn}) == 8


def test_weights_with_tied_embeddings_are_swapped_exactly_and_back(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    one, two = policies
    for version, (policy, other) in enumerate([(one, two), (two, one), (one, two)], start=4):
        server.load(policy, version)
        drawn = replies(server, 4)
        assert {reply.policy_version for reply in drawn} == {version}
        assert furthest(policy, drawn) < 1e-4 < 0.5 < furthest(other, drawn)


def test_adapters_are_swapped_on_their_base_and_taken_off_again(
    server: VLLM, policies: tuple[Path, Path], tmp_path: Path
) -> None:
    base = policies[0]
    one, two = (adapter(base, tmp_path / str(seed), seed) for seed in (1, 2))
    server.load(base, 0)
    for folder, other, version in ((one, two, 1), (two, one, 2), (one, two, 3)):
        server.load(folder, version, base)
        drawn = replies(server, 8)
        assert {reply.policy_version for reply in drawn} == {version}
        assert furthest(folder, drawn, base=base) < 1e-4 < 0.1 < furthest(other, drawn, base=base)
    server.load(base, 4)
    assert furthest(base, replies(server, 8)) < 1e-4


def test_an_adapter_on_a_different_base_model_is_refused(
    server: VLLM, policies: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = policies
    folder = adapter(two, tmp_path / "adapter", 1)
    server.load(one, 0)
    with pytest.raises(WrongWeights, match=r"probe\.json"):
        server.load(folder, 1, two)
    with pytest.raises(ServiceLost, match="label 'loading'"):
        replies(server, 1)


def test_a_policy_that_is_served_already_is_not_read_again(
    server: VLLM, policies: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(policies[1], tmp_path / "policy"))
    server.load(copy, 7)
    for path in copy.glob("*.safetensors"):
        path.unlink()
    server.load(copy, 7)
    with pytest.raises(ServiceLost, match=r"500 .*model weights"):
        server.load(copy, 8)


def test_a_policy_that_contradicts_its_probe_is_refused(
    server: VLLM, policies: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = policies
    mixed = Path(shutil.copytree(one, tmp_path / "policy"))
    shutil.copy(two / "probe.json", mixed)
    with pytest.raises(WrongWeights, match=r"probe\.json.*0\.0001"):
        server.load(mixed, 9)
    with pytest.raises(ServiceLost, match="label 'loading'"):
        replies(server, 1)
    server.load(one, 9)
    assert furthest(one, replies(server, 1)) < 1e-4


def test_an_overlong_prompt_is_refused(server: VLLM, policies: tuple[Path, Path]) -> None:
    server.load(policies[0], 0)
    with pytest.raises(ValueError, match=r"request of 140 tokens: .*length of 128"):
        replies(server, 1, prompt=range(140))


@pytest.mark.long
def test_the_next_load_waits_for_a_restarted_server(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    async def play() -> None:
        request = Request(PROMPT, SamplingParams(1.0, 12, ()), conversation(0))
        async with server.shard(2) as session:
            assert len((await session.sample(request)).tokens) == 12
            for process in family(server):
                if process.name().startswith("VLLM::"):
                    process.kill()
            await session.sample(request)

    server.load(policies[1], 3)
    before = replies(server, 8)
    with pytest.raises(ServiceLost, match=r"From .*vllm\.log"):
        asyncio.run(play())
    server.load(policies[1], 3)
    assert replies(server, 8) == before


def test_every_process_of_the_server_carries_the_mark_of_its_run(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    server.load(policies[0], 0)
    processes = family(server)
    assert any(process.name().startswith("VLLM::Engine") for process in processes)
    assert {process.environ().get("AGENTFLY_RUN") for process in processes} == {"test-vllm"}


def test_no_process_of_the_server_spins_while_it_waits(
    server: VLLM, policies: tuple[Path, Path]
) -> None:
    server.load(policies[0], 0)
    replies(server, 8)
    processes = family(server)
    before = [sum(process.cpu_times()[:2]) for process in processes]
    psutil.wait_procs(processes, timeout=2)
    assert sum(sum(process.cpu_times()[:2]) for process in processes) - sum(before) < 0.5


def family(server: VLLM) -> list[psutil.Process]:
    state = ChildState.read(server.service.address)
    assert state is not None
    return list(psutil.Process(state.keeper).children(recursive=True))
