"""HTTP servers for programs that play episodes. Each episode has its own server."""

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from agentfly_core.gateway.chat import RequestRefused, completion, events, models
from agentfly_core.gateway.serving import ServedPolicy
from agentfly_core.gateway.session import MOST_BYTES, GatewaySession, HttpCall
from agentfly_core.system.formats.json_value import JSON

HOST = "127.0.0.1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
UNSUPPORTED = (
    "is not supported (the gateway serves /chat/completions, /models and /reward), or the episode "
    "of this URL has ended. Let your client use chat completions, for example with "
    "OpenAIChatCompletionsModel of openai-agents."
)


class GatewayServer:
    """HTTP server for the programs that play one episode, or for the clients of a served policy.

    The paths of all requests begin with `base`. If `key` is not empty, requests must have this
    API key.
    """

    def __init__(self, session: GatewaySession | ServedPolicy, base: str, key: str) -> None:
        self._session, self._key = session, key
        steps = [_in_openai_form, self._with_key]
        self.app = web.Application(client_max_size=MOST_BYTES, middlewares=steps)
        self.app.add_routes(
            [
                web.get(f"{base}/models", self._models),
                web.post(f"{base}/reward", self._reward),
                web.post(f"{base}/chat/completions", self._complete),
                web.post(f"{base}/{{part:.+}}/chat/completions", self._complete),
            ]
        )

    @web.middleware
    async def _with_key(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._key and request.headers.get("Authorization") != f"Bearer {self._key}":
            raise RequestRefused(
                "The API key of the request is missing or wrong. Send the header `Authorization: "
                "Bearer KEY` with the key of this server.",
                401,
                "invalid_api_key",
            )
        return await handler(request)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return _json(models(self._session.models))

    async def _reward(self, request: web.Request) -> web.StreamResponse:
        self._session.reward(await _text(request))
        return _json({})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        part, transport = request.match_info.get("part", ""), request.transport

        # a reference to the request would keep its body in memory, so this function uses only the
        # transport
        def connected() -> bool:
            return transport is not None and not transport.is_closing()

        call = HttpCall(await _text(request), part, headers, connected)
        exchange, wanted = await self._session.complete(call), call.request
        completed = completion(wanted, exchange.replies.result())
        if wanted.stream:
            body, kind = b"".join(events(completed, wanted.include_usage)), "text/event-stream"
        else:
            body, kind = json.dumps(completed).encode(), "application/json"
        response = web.Response(body=body, content_type=kind)
        await response.prepare(request)
        await response.write_eof()
        exchange.received = exchange.received or connected()
        return response


@asynccontextmanager
async def served(
    session: GatewaySession, listener: socket.socket | None = None
) -> AsyncIterator[str]:
    """Run a server for an episode's programs until the end of the `with` block. Yield the base URL.

    Without `listener`, the server listens on a free port of this machine.
    """
    here = listener or socket.create_server((HOST, 0))
    async with serving(session, f"/{session.token}/v1", here) as url:
        try:
            yield url
        finally:
            session.close()  # otherwise the server would wait for replies in progress


@asynccontextmanager
async def serving(
    session: GatewaySession | ServedPolicy, base: str, listener: socket.socket, key: str = ""
) -> AsyncIterator[str]:
    """Serve an episode or a policy on a listening socket until the end of the `with` block. Yield
    the base URL for clients.

    The URL ends with `base`. If `key` is not empty, clients must send it as their API key. Requests
    are handled in the caller's `contextvars` context.
    """
    server = GatewayServer(session, base, key)
    runner = web.AppRunner(server.app, access_log=None, shutdown_timeout=1.0)
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()
        yield f"http://{HOST}:{runner.addresses[0][1]}{base}"
    finally:
        await runner.cleanup()


@web.middleware
async def _in_openai_form(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert errors to responses in the format of OpenAI's API."""
    try:
        return await handler(request)
    except RequestRefused as error:
        return _json(error.body, error.status)
    except web.HTTPException as error:
        sentence = f"{request.path.rpartition('/v1')[2]} {UNSUPPORTED}"
        text = sentence if error.status == 404 else error.text or error.reason
        return _json(RequestRefused(text, error.status).body, error.status)


async def _text(request: web.Request) -> str:
    try:
        return (await request.read()).decode()
    except UnicodeDecodeError as error:
        raise RequestRefused(f"The body is not UTF-8: {error}.") from error


def _json(value: Mapping[str, JSON], status: int = 200) -> web.Response:
    return web.json_response(value, status=status)
