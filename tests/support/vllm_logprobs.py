"""Log-probabilities of given tokens by a vLLM server."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

from agentfly_core.inference.vllm_server import SERVED
from agentfly_core.system.service import Service
from tests.support.waiting import LIMIT


@contextmanager
def client_of(service: Service) -> Iterator[httpx.Client]:
    """An HTTP client of a vLLM server."""
    transport = httpx.HTTPTransport(uds=str(service.address))
    with httpx.Client(transport=transport, base_url="http://vllm", timeout=LIMIT) as client:
        yield client


def logprobs_of(server: httpx.Client, tokens: Sequence[int]) -> list[float]:
    """Log-probabilities of all tokens after the first."""
    sampling = {"temperature": 1.0, "max_tokens": 1, "prompt_logprobs": 0}
    body = {"model": SERVED, "token_ids": list(tokens), "sampling_params": sampling}
    answer = server.post("/inference/v1/generate", json=body).raise_for_status().json()
    places = answer["prompt_logprobs"][1:]
    return [place[str(token)]["logprob"] for token, place in zip(tokens[1:], places, strict=True)]
