"""The HTTP servers of the gateway.

One server in a process serves all programs outside of the sandbox. Each program in the sandbox has
its own server.
"""

import asyncio
import contextvars
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from aiohttp import web

from agentfly_core.gateway.chat import RequestRefused, completion, events, models
from agentfly_core.gateway.serving import ServedPolicy
from agentfly_core.gateway.session import MOST_BYTES, GatewaySession, HttpCall
from agentfly_core.system.formats.json_value import JSON

HOST = "127.0.0.1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
UNSUPPORTED = (
    "is not supported: the gateway has /chat/completions, /models and /reward. Use the chat "
    "completions of your client, for example OpenAIChatCompletionsModel of openai-agents."
)


class GatewayServer:
    """An HTTP server on a listening socket.

    A token in the URL of a request selects an episode. For a served policy, the API key of the
    request selects the policy. `url` is the task that starts the server and returns its URL.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.sessions: dict[str, GatewaySession | ServedPolicy] = {}
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[_in_openai_form])
        for base in ("/{token}/v1", "/v1"):
            app.add_routes(
                [
                    web.get(f"{base}/models", self._models),
                    web.post(f"{base}/reward", self._reward),
                    web.post(f"{base}/chat/completions", self._complete),
                    web.post(f"{base}/{{part:.+}}/chat/completions", self._complete),
                ]
            )
        self._listener = listener
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        # in an empty context, because connections must not belong to the agent of the first episode
        self.url = asyncio.create_task(self._start(), context=contextvars.Context())

    async def close(self) -> None:
        """Close the server and its connections."""
        await asyncio.create_task(self._runner.cleanup(), context=contextvars.Context())

    async def _start(self) -> str:
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()
        return f"http://{HOST}:{self._runner.addresses[0][1]}"

    def _session(self, request: web.Request) -> GatewaySession | ServedPolicy:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        token = request.match_info.get("token", key)
        if (session := self.sessions.get(token)) is None and token == key:
            raise RequestRefused("This server has another API key.", 401, "invalid_api_key")
        if session is None:
            raise RequestRefused(
                "No running episode has this URL; the episode may have ended.", 404
            )
        return session

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return _json(models(self._session(request).models))

    async def _reward(self, request: web.Request) -> web.StreamResponse:
        self._session(request).reward(await _text(request))
        return _json({})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        session = self._session(request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        part, transport = request.match_info.get("part", ""), request.transport

        # a reference to the request would keep its body in memory, so this function uses only the
        # transport
        def connected() -> bool:
            return transport is not None and not transport.is_closing()

        call = HttpCall(await _text(request), part, headers, connected)
        exchange, wanted = await session.complete(call), call.request
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


_servers: WeakKeyDictionary[asyncio.AbstractEventLoop, GatewayServer] = WeakKeyDictionary()


@asynccontextmanager
async def served(session: GatewaySession) -> AsyncIterator[str]:
    """Serve the requests of a session during the block. Yield the base URL for its clients."""
    loop = asyncio.get_running_loop()
    if (server := _servers.get(loop)) is None:
        server = _servers[loop] = GatewayServer(socket.create_server((HOST, 0)))
    server.sessions[session.token] = session
    try:
        yield f"{await asyncio.shield(server.url)}/{session.token}/v1"
    finally:
        del server.sessions[session.token]
        if not server.sessions:
            del _servers[loop]
            await server.close()
        session.close()


@asynccontextmanager
async def served_alone(
    session: GatewaySession | ServedPolicy, key: str, listener: socket.socket
) -> AsyncIterator[str]:
    """Serve one session on its own listening socket during the block.

    Clients must send `key`. Yield the base URL for the clients.
    """
    server = GatewayServer(listener)
    server.sessions[key] = session
    try:
        yield f"{await server.url}/v1"
    finally:
        await server.close()


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
