"""A model server with scripted replies; `rollout_vs_verifiers.py` starts it as a process.

The server offers vLLM's `/inference/v1/generate`, with token ids in requests and replies, and
`/v1/chat/completions`, on a UNIX socket and on a TCP port. It prints the number of the port. The
reply depends on the number of replies in the request. A reply takes the time in the settings, or
the time of a vLLM server for the same prompt and number of tokens.
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
from aiohttp import web

LABEL = "0-scripted"
Backend = Callable[[Sequence[int], int], Awaitable[list[float]]]


def asleep(latency: float) -> Backend:
    """Return a backend that waits `latency` seconds per reply. All log-probabilities are 0."""

    async def sample(_: Sequence[int], length: int) -> list[float]:
        await asyncio.sleep(latency)
        return [0.0] * length

    return sample


def behind(session: aiohttp.ClientSession) -> Backend:
    """Return a backend that takes the time of a vLLM server.

    For each reply, it samples the same number of tokens from the server. It returns the
    log-probabilities of these tokens.
    """
    plain = {"temperature": 1.0, "ignore_eos": True, "logprobs": 0, "detokenize": False}

    async def sample(prompt: Sequence[int], length: int) -> list[float]:
        body = {
            "model": "policy",
            "token_ids": prompt,
            "sampling_params": {**plain, "max_tokens": length},
        }
        async with session.post(
            "http://vllm/inference/v1/generate", json=body, raise_for_status=True
        ) as response:
            answer = await response.json()
        return [place["logprob"] for place in answer["choices"][0]["logprobs"]["content"]]

    return sample


class Endpoint:
    """The HTTP routes of a scripted model.

    `header` has the tokens that come before each reply in a prompt. `script` has the replies, such
    as

        {"tokens": [282, 198, ...],
            "message": {"role": "assistant", "content": "", "tool_calls": [...]}}
    """

    def __init__(
        self, script: Sequence[dict[str, Any]], header: Sequence[int], backend: Backend
    ) -> None:
        self._script, self._header, self._backend = script, list(header), backend

    async def generate(self, request: web.Request) -> web.Response:
        """Answer a request with the token ids of the next reply. The request has token ids, too."""
        prompt = (await request.json())["token_ids"]
        width = len(self._header)
        headers = sum(
            prompt[place : place + width] == self._header
            for place in range(len(prompt) - width + 1)
        )
        tokens = self._script[headers - 1]["tokens"]
        logprobs = await self._backend(prompt, len(tokens))
        places = [
            {"token": f"token_id:{one}", "logprob": it}
            for one, it in zip(tokens, logprobs, strict=True)
        ]
        choice = {
            "index": 0,
            "token_ids": tokens,
            "finish_reason": "stop",
            "stop_reason": None,
            "logprobs": {"content": places},
            "weight_versions": [{"version": LABEL}],
        }
        return web.json_response({"request_id": "scripted", "choices": [choice]})

    async def chat(self, request: web.Request) -> web.Response:
        """Answer a chat completion request with the message of the next reply."""
        messages = (await request.json())["messages"]
        turn = self._script[sum(message["role"] == "assistant" for message in messages)]
        await self._backend([], len(turn["tokens"]))
        finish = "tool_calls" if turn["message"].get("tool_calls") else "stop"
        choice = {"index": 0, "message": turn["message"], "finish_reason": finish}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "scripted", "object": "chat.completion", "created": 0, "model": "policy"}
        return web.json_response({**head, "choices": [choice], "usage": usage})

    def application(self) -> web.Application:
        """Return the web application with all routes, including routes that describe the model."""

        async def models(_: web.Request) -> web.Response:
            return web.json_response(
                {"object": "list", "data": [{"id": "policy", "object": "model"}]}
            )

        async def weights(_: web.Request) -> web.Response:
            return web.json_response({"weight_version": LABEL})

        application = web.Application(client_max_size=2**26)
        application.router.add_post("/inference/v1/generate", self.generate)
        application.router.add_post("/v1/chat/completions", self.chat)
        application.router.add_get("/v1/models", models)
        application.router.add_get("/weight_info", weights)
        return application


async def serve(given: dict[str, Any]) -> None:
    """Serve the model until the process is stopped. `given` has the settings."""
    connector = aiohttp.UnixConnector(given["vllm"], limit=0) if given["vllm"] else None
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(600.0)
    ) as session:
        backend = behind(session) if given["vllm"] else asleep(given["latency"])
        runner = web.AppRunner(
            Endpoint(given["script"], given["header"], backend).application(), access_log=None
        )
        await runner.setup()
        await web.UnixSite(runner, given["socket"], backlog=1024).start()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        print(runner.addresses[1][1], flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Read the settings and serve the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", help="JSON: socket, script, header, latency, vllm")
    asyncio.run(serve(json.loads(parser.parse_args().settings)))


if __name__ == "__main__":
    main()
