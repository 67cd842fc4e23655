"""The sampler `vllm`. It uses a vLLM server on a UNIX socket, which reads and returns token ids.

Each reply contains the server's weight version. If the server has restarted or a load was
interrupted, this version differs from the version that the sampler loaded.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import httpx

from agentfly_core.inference.sampler import Request, SamplerSession, SamplingParams
from agentfly_core.inference.vllm_server import LONGEST_IDLE, SERVED
from agentfly_core.models.probe import Probe
from agentfly_core.records.trajectory import Finish, Sampled
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault
from agentfly_core.system.service import Service, ServiceLost

LOADING, ADAPTER = "loading", "adapter"
PATIENCE = 1800.0
TEMPORARY = (429, 500, 502, 503, 504)
PAUSES = tuple(0.05 * 2.0**attempt for attempt in range(7))
"""Seconds to wait before each retry of a request that failed with a status in TEMPORARY."""
NO_LOGPROB = -9999.0
MOST_LIKELY = 20
"""The number of most likely tokens from which an entropy is estimated. By default, vLLM allows at
most 20.
"""


@dataclass(frozen=True, slots=True)
class VLLM:
    """The sampler of a vLLM service.

    The server, not this object, stores which policy is loaded. With `takes_turns`, the server
    sleeps while the learner works.
    """

    service: Service
    dtype: str
    concurrency: int
    takes_turns: bool = False

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Load a policy into the running server, check its weights, and label it with `version`.

        If the policy is an adapter, `base` must be the server's model. Waits while the server
        starts. For the check, the file probe.json in the policy directory contains tokens and their
        log-probabilities. Raises WrongWeights if the server's log-probabilities deviate too much
        from this file. Raises ServiceLost, with the end of the server's log, if the
        server dies.
        """
        probe = Probe.of(policy, base)
        label = f"{version}-{probe.digest}" + (f"-{ADAPTER}" if base else "")
        with self._server() as server:
            self.service.wait(partial(_healthy, server), PATIENCE)
            if self.takes_turns:
                server.post("/wake_up")
            # when a run is resumed, its policy is often already loaded
            if _label(server) == label:
                return
            # if the load is interrupted, this label remains, and `shard` refuses the half-loaded
            # weights
            server.post("/update_weight_version", json={"new_version": LOADING})
            if base is not None:
                adapter = {"lora_name": ADAPTER, "lora_path": str(policy), "load_inplace": True}
                server.post("/v1/load_lora_adapter", json=adapter)
            else:
                models = server.get("/v1/models").json()["data"]
                if any(model["id"] == ADAPTER for model in models):
                    server.post("/v1/unload_lora_adapter", json={"lora_name": ADAPTER})
                server.post("/collective_rpc", json={"method": "swap", "args": [str(policy)]})
            # reset, because the prefix cache belongs to the old weights; repeated, because vLLM
            # refuses the reset while requests run
            self.service.wait(
                lambda: bool(server.post("/reset_prefix_cache").json()["success"]), PATIENCE
            )
            # labelled only after the check, because after a reload vLLM has silently kept old
            # weights of the output projection
            self._check(server, policy, probe, _model(label))
            server.post("/update_weight_version", json={"new_version": label})

    def rest(self) -> None:
        """If `takes_turns` is True, let the server sleep until the next `load`, to free GPU memory
        for the learner. If `takes_turns` is False, do nothing.
        """
        if self.takes_turns:
            with self._server() as server:
                self.service.wait(partial(_healthy, server), PATIENCE)
                # sleep level 1 keeps the base model of an adapter
                server.post("/sleep", params={"level": 1})

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[SamplerSession]:
        """Open a session for a shard (episodes that run concurrently). `episodes` is not used.

        Raises ServiceLost if no policy is loaded, or if the last load was interrupted.
        """
        with self._server() as server:
            label = _label(server)
        if "-" not in label:
            raise ServiceLost(
                f"The policy on the vLLM server (label {label!r}) is not loaded completely. Load "
                "a policy again."
            )
        connector = aiohttp.UnixConnector(
            self.service.address, limit=self.concurrency, keepalive_timeout=LONGEST_IDLE / 60
        )
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(PATIENCE)
        ) as session:
            yield _Shard(self.service, session, label)

    def _check(self, server: httpx.Client, policy: Path, probe: Probe, model: str) -> None:
        sampling = _sampling(SamplingParams(1.0, 1, ()), 0) | {"prompt_logprobs": 0}
        body = {"model": model, "token_ids": probe.tokens, "sampling_params": sampling}
        places = server.post("/inference/v1/generate", json=body).json()["prompt_logprobs"][1:]
        logprobs = [
            place[str(token)]["logprob"]
            for token, place in zip(probe.tokens[1:], places, strict=True)
        ]
        probe.require(logprobs, self.dtype, "vLLM", policy)

    @contextmanager
    def _server(self) -> Iterator[httpx.Client]:
        """Yield a client of the server. Errors of the client become ServiceLost.

        The connection is a Unix socket without TLS, so no certificates are needed. `verify=False`
        saves the 20 ms of loading them.
        """
        client = httpx.Client(
            transport=httpx.HTTPTransport(uds=self.service.address, verify=False),
            base_url="http://vllm",
            timeout=PATIENCE,
            event_hooks={"response": [_raise_for_status]},
        )
        try:
            with client:
                yield client
        except httpx.HTTPError as error:
            raise self.service.lost(f"failed: {fault(error)}") from error


@dataclass(frozen=True, slots=True)
class _Shard(SamplerSession):
    """A session on the vLLM server for one shard (episodes that run concurrently).

    The session uses aiohttp, because httpx needs 15 times the CPU time at 64 connections.
    """

    service: Service
    session: aiohttp.ClientSession
    label: str

    async def sample(self, request: Request) -> Sampled:
        body = {
            "model": _model(self.label),
            "token_ids": list(request.prompt),
            "sampling_params": _sampling(request.params, request.conversation.seed),
        }
        answer = await self._answer(body)
        choice = answer["choices"][0]
        if choice["finish_reason"] not in ("stop", "length"):
            raise self._lost(f"a reply ended with {choice['finish_reason']!r}")
        versions = choice["weight_versions"]
        # if the server has restarted, it has its initial weights, which only the version reveals
        if [span["version"] for span in versions] != [self.label]:
            raise self._lost(f"a reply has the weight versions {versions}, expected {self.label}")
        places = choice["logprobs"]["content"]
        logprobs = tuple(place["logprob"] for place in places)
        # vLLM writes this number for -inf, which JSON cannot express
        if NO_LOGPROB in logprobs:
            raise ValueError(
                "vLLM returned a token without a log-probability, because the policy's weights "
                "are not finite. Use an earlier policy, and lower the learning rate."
            )
        # the label is version-probe, see `load`
        version = int(self.label.partition("-")[0])
        # `stop_reason` is a string for a stop string, and a number for a stop token
        at_string = isinstance(choice["stop_reason"], str)
        finish: Finish = "stop_string" if at_string else choice["finish_reason"]
        likeliest = ([one["logprob"] for one in place["top_logprobs"]] for place in places)
        entropies = tuple(map(entropy, likeliest)) if request.params.entropies else ()
        return Sampled(tuple(choice["token_ids"]), logprobs, version, finish, entropies)

    async def _answer(self, body: Mapping[str, Any]) -> Any:
        """Send a request and return the server's answer. Requests that failed temporarily are
        retried.
        """
        for pause in (*PAUSES, None):
            try:
                async with self.session.post(
                    "http://vllm/inference/v1/generate", json=body
                ) as response:
                    text = await response.text()
            except (TimeoutError, aiohttp.ClientError) as error:
                raise self._lost(fault(error)) from error
            if pause is None or response.status not in TEMPORARY:
                break
            await asyncio.sleep(pause)
        if response.status == 400:
            raise ValueError(
                f"vLLM refused a request of {len(body['token_ids'])} tokens: "
                f"{json.loads(text)['error']['message']}"
            )
        if response.status != 200:
            raise self._lost(f"{response.status} {text}")
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._lost(f"{error} in {text[:80]!r}") from error

    def _lost(self, what: str) -> ServiceLost:
        return self.service.lost(f"failed a request: {what}")


def _sampling(params: SamplingParams, seed: int) -> dict[str, JSON]:
    """Return the sampling settings of a request.

    Every setting has a value, so that no default of the model or the server applies.
    """
    return {
        "n": 1,
        "temperature": params.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": seed,
        "stop": params.stop,
        "stop_token_ids": params.stop_tokens,
        # all end tokens are in `stop_token_ids`; the end tokens in the model's configuration may
        # differ
        "ignore_eos": True,
        "min_tokens": 0,
        "max_tokens": params.max_tokens,
        # 0 requests only the log-probability of the sampled token
        "logprobs": MOST_LIKELY if params.entropies else 0,
        "detokenize": bool(params.stop),
        "skip_special_tokens": False,
        "spaces_between_special_tokens": True,
    }


def entropy(likeliest: Sequence[float]) -> float:
    """Estimate the entropy of a distribution, in nats, from its largest log-probabilities.

    All remaining tokens are treated as one token, so the estimate is never above the exact entropy.
    """
    probabilities = [math.exp(logprob) for logprob in likeliest]
    rest = max(0.0, 1 - math.fsum(probabilities))
    return -math.fsum(p * math.log(p) for p in (*probabilities, rest) if p)


def _healthy(server: httpx.Client) -> bool:
    try:
        return server.get("/health", timeout=5.0).is_success
    except httpx.HTTPError:
        return False


def _label(server: httpx.Client) -> str:
    return str(server.get("/weight_info").json()["weight_version"])


def _model(label: str) -> str:
    """Return the model name to send in requests: "adapter" or "policy".

    `label` is the label of the loaded weights. The label of an adapter ends with "-adapter".
    """
    return ADAPTER if label.endswith(f"-{ADAPTER}") else SERVED


def _raise_for_status(response: httpx.Response) -> None:
    if response.is_error:
        response.read()
        raise httpx.HTTPStatusError(
            f"{response.status_code} {response.text}", request=response.request, response=response
        )
