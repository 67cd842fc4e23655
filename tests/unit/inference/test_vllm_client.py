"""The vLLM client refuses answers that would make a wrong record."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference import vllm_client
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.vllm_client import NO_LOGPROB, VLLM
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.system.service import Service, ServiceLost

LABEL = "7-9f2c"
REQUEST = Request(
    (1, 40, 50), SamplingParams(1.0, 8, (2,)), Conversation(Problem("p", "?"), 0, 0, (), (), 0)
)
Answer = Callable[[web.Request], Awaitable[web.Response]]


def status(code: int, body: dict[str, Any]) -> Answer:
    """A handler that gives this answer to each request."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=code)

    return answer


def reply(**changed: Any) -> Answer:
    """A reply of two tokens by the policy LABEL, with some fields changed."""
    choice = {
        "token_ids": [41, 2],
        "finish_reason": "stop",
        "stop_reason": 2,
        "weight_versions": [{"version": LABEL}],
        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -0.25}]},
        **changed,
    }
    return status(200, {"choices": [choice]})


async def closing(request: web.Request) -> web.Response:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def sampled(answer: Answer, weights: Answer) -> Sampled:
    """Ask a server with these answers for a reply; the server has this event loop for itself."""
    app = web.Application()
    app.router.add_get("/weight_info", weights)
    app.router.add_post("/inference/v1/generate", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory(prefix="agentfly-") as folder:
        sampler = VLLM(Service("vllm", f"{folder}/vllm.sock"), "float32", 8)
        await web.UnixSite(runner, sampler.service.address).start()

        async def ask() -> Sampled:
            async with sampler.shard(1) as session:
                return await session.sample(REQUEST)

        try:
            return await asyncio.to_thread(asyncio.run, ask())
        finally:
            await runner.cleanup()


LOADED = status(200, {"weight_version": LABEL})


async def test_a_reply_has_the_version_of_the_policy_and_its_finish() -> None:
    assert await sampled(reply(), LOADED) == Sampled((41, 2), (-0.5, -0.25), 7, "stop")
    at_string = await sampled(reply(stop_reason="Observation:"), LOADED)
    assert at_string.finish == "stop_string"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_client, "PAUSES", (0.0,) * 7)


async def test_a_request_that_a_busy_server_refused_is_repeated() -> None:
    answers = [status(429, {}), status(500, {}), status(503, {}), reply()]
    bodies = list[Any]()

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return await answers.pop(0)(request)

    assert await sampled(answer, LOADED) == Sampled((41, 2), (-0.5, -0.25), 7, "stop")
    assert bodies == [bodies[0]] * 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            reply(weight_versions=[{"version": "8-77b0"}]),
            "a reply has the weight versions .*8-77b0",
        ),
        (
            reply(weight_versions=[{"version": LABEL}, {"version": "8-77b0"}]),
            "a reply has the weight versions .*8-77b0",
        ),
        (reply(finish_reason="abort"), "a reply ended with 'abort'"),
        (status(500, {"error": "engine died"}), "500 .*engine died"),
        (closing, "failed a request"),
    ],
    ids=["another policy", "two policies", "an abort", "an error", "no answer"],
)
async def test_an_unusable_reply_is_a_lost_sampler(answer: Answer, message: str) -> None:
    with pytest.raises(ServiceLost, match=message):
        await sampled(answer, LOADED)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            status(400, {"error": {"message": "too long"}}),
            "refused a request of 3 tokens: too long",
        ),
        (
            reply(logprobs={"content": [{"logprob": -0.5}, {"logprob": NO_LOGPROB}]}),
            "weights are not finite",
        ),
    ],
    ids=["a refused request", "no log-probability"],
)
async def test_what_would_fail_again_is_no_lost_sampler(answer: Answer, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await sampled(answer, LOADED)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            status(200, {"weight_version": "loading"}),
            "'loading'.* not loaded .*Load a policy again",
        ),
        (status(503, {"detail": "no engine"}), "503 .*no engine"),
    ],
    ids=["an interrupted load", "no engine"],
)
async def test_without_a_loaded_policy_no_shard_begins(weights: Answer, message: str) -> None:
    with pytest.raises(ServiceLost, match=message):
        await sampled(reply(), weights)
