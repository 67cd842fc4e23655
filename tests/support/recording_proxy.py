"""A proxy between us and vLLM that records every generated reply on its own."""

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.recorded_rows import Generated

GENERATE = "/inference/v1/generate"


class RecordingProxy:
    """Forwards requests from a UNIX socket to another one; `generated` counts the replies.

    A share of `faults` of them gets 429 or 500 instead of its reply, before or after it is sampled.
    """

    def __init__(self, address: Path, behind: str, faults: float) -> None:
        self.generated, self.injected = Counter[Generated](), Counter[int]()
        self._faults, self._random = faults, random.Random(0)
        self._address, self._behind = address, behind

    async def serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        connector = aiohttp.UnixConnector(self._behind, limit=64)
        async with aiohttp.ClientSession(connector=connector) as self._client:
            app = web.Application(client_max_size=2**26)
            app.router.add_route("*", "/{path:.*}", self._forward)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.UnixSite(runner, str(self._address)).start()
            ready.set()
            await end.wait()
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        fails = request.path == GENERATE and self._random.random() < self._faults
        status = self._random.choice((429, 500))
        if fails and status == 429:
            return self._failure(status)
        url, headers = f"http://vllm{request.path_qs}", {"content-type": "application/json"}
        async with self._client.request(
            request.method, url, data=body, headers=headers
        ) as response:
            answer = await response.read()
        if fails:
            return self._failure(status)
        if request.path == GENERATE and response.status == 200:
            self.generated[_generated(json.loads(body), json.loads(answer))] += 1
        return web.Response(body=answer, status=response.status, content_type="application/json")

    def _failure(self, status: int) -> web.Response:
        self.injected[status] += 1
        return web.json_response({"error": {"message": "injected"}}, status=status)


def _generated(sent: Any, answer: Any) -> Generated:
    (choice,) = answer["choices"]
    logprobs = tuple(place["logprob"] for place in choice["logprobs"]["content"])
    return tuple(sent["token_ids"]), tuple(choice["token_ids"]), logprobs


@contextmanager
def recording(address: Path, behind: str, faults: float = 0.0) -> Iterator[RecordingProxy]:
    """Run a proxy in a thread of its own."""
    address.parent.mkdir(parents=True, exist_ok=True)
    proxy, ready = RecordingProxy(address, behind, faults), threading.Event()
    loop, end = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(proxy.serve(ready, end),))
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()
