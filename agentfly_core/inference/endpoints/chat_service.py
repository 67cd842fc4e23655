"""The client of a chat service with OpenAI's API. The client retries failed requests, limits
requests and tokens, and stores answers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import aiohttp

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.config.site import Endpoint
from agentfly_core.inference.endpoints.budget import Budget
from agentfly_core.inference.endpoints.chat import ChatRequest, reply_of, tokens_of
from agentfly_core.inference.sampler import NoReply
from agentfly_core.records.trajectory import Message
from agentfly_core.store.store import Store
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import JSON, as_json, map_strings
from agentfly_core.system.formats.text import clip, counted, fault, redact

PASSING = (408, 409, 425, 429)
"""HTTP status codes that are retried. All codes of 500 or more are retried, too."""
LONGEST_PAUSE = 60.0
BYTES_A_TOKEN = 4
MOST_SHOWN = 500


class _Passing(Exception):
    """A request to the chat service failed, but the same request may succeed later."""


class ChatService:
    """A chat service: `ChatService("judge", site.endpoints["judge"], store)`.

    `store` stores each answer under the digest of its request. `pause` is the time in seconds
    before the second attempt. The pause doubles with each further attempt, up to 60 seconds. All
    connections share the limits of requests and tokens (the budget). Each event loop has its own
    limit of concurrent requests.
    """

    def __init__(self, name: str, settings: Endpoint, store: Store, pause: float = 1.0) -> None:
        self.name, self.settings, self.store, self.pause = name, settings, store, pause
        self.budget = Budget(name, settings.max_requests, settings.max_tokens)
        self._rooms = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    @property
    def room(self) -> asyncio.Semaphore:
        """The semaphore that limits concurrent requests on the running event loop.

        Each event loop has its own semaphore. So unfinished requests of a blocked event loop do not
        delay the requests of a new event loop.
        """
        room = asyncio.Semaphore(self.settings.concurrency)
        return self._rooms.setdefault(asyncio.get_running_loop(), room)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ChatClient]:
        """Open connections to the service on the running event loop.

        Raises ValueError if the environment variable with the API key is unset.
        """
        variable = self.settings.api_key_env
        if variable and not os.environ.get(variable):
            raise ValueError(
                f"endpoints.{self.name}.api_key_env: the environment variable {variable} is not "
                "set; put the service's key into it."
            )
        key = {"Authorization": f"Bearer {os.environ[variable]}"} if variable else {}
        limit = aiohttp.ClientTimeout(self.settings.timeout)
        connector = aiohttp.TCPConnector(limit=self.settings.concurrency)
        async with aiohttp.ClientSession(
            connector=connector, timeout=limit, headers=key, trust_env=True
        ) as session:
            yield ChatClient(self, session)


@dataclass(frozen=True, slots=True)
class ChatClient:
    """The connections to a chat service on one event loop."""

    service: ChatService
    session: aiohttp.ClientSession

    async def ask(self, request: ChatRequest, draw: int) -> Message:
        """Return the reply of the service to a request.

        The reply is stored under a digest of the request and `draw`, and a repeated request gets
        the stored reply. Like a seed, `draw` distinguishes several replies to the same request.

        Raises ServiceFailure if all attempts fail, NoReply if the service refuses the
        request, and BudgetSpent if the limit of requests or tokens is reached.
        """
        settings = self.service.settings
        fields = {**request.body(), "model": settings.model, **settings.extra}
        body: dict[str, JSON] = {name: value for name, value in fields.items() if value is not None}
        # 1 is the format version of stored answers
        key = digest(["chat", 1, settings.url, body, draw])
        if (answer := await self._stored(key)) is not None:
            return reply_of(answer)
        failure = ""
        for attempt in range(settings.attempts):
            self.service.budget.take()
            try:
                async with self.service.room:
                    answer = await self._sent(body)
                content: dict[str, JSON] = {"answer": as_json(answer)}
                create = self.service.store.create_json
                new = await asyncio.to_thread(create, _answer_uri(key), content)
                # if another task has stored an answer to the same request meanwhile, use that
                # answer
                return reply_of(answer if new else await self._stored(key))
            except _Passing as passing:
                failure = str(passing)
                if attempt + 1 < settings.attempts:
                    await asyncio.sleep(min(self.service.pause * 2**attempt, LONGEST_PAUSE))
        raise ServiceFailure(
            f"The endpoint {self.service.name!r} gave no answer in "
            f"{counted(settings.attempts, 'attempt')}: {failure}"
        )

    async def _stored(self, key: str) -> JSON:
        """Return the stored answer of a key, or None.

        Raises Damaged if the stored file is damaged.
        """
        entry = await asyncio.to_thread(self.service.store.read_json, _answer_uri(key))
        answer: JSON = entry["answer"] if entry else None
        return answer

    async def _sent(self, body: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Send a request once, and return the answer.

        Raises _Passing if a further attempt may succeed, and NoReply if the service refuses
        the request.
        """
        url = f"{self.service.settings.url.rstrip('/')}/chat/completions"
        try:
            # a redirect could send the key to another host
            async with self.session.post(url, json=body, allow_redirects=False) as response:
                content = await self._content(response)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _Passing(fault(error)) from error
        message = f"{response.status} {clip(self._redacted(content), MOST_SHOWN)}"
        if response.status in PASSING or response.status >= 500:
            raise _Passing(message)
        if response.status != 200:
            raise NoReply(f"The endpoint {self.service.name!r} refuses a request: {message}")
        try:
            parsed = strict_json.parse(content, self.service.settings.max_answer_bytes)
            reply_of(parsed)
        except ValueError as error:
            raise _Passing(f"the answer cannot be read: {error}") from error
        assert isinstance(parsed, Mapping), "or it would have no choices"
        estimate = (len(str(body)) + len(content)) // BYTES_A_TOKEN
        self.service.budget.spend(tokens_of(parsed) or estimate)
        return {name: map_strings(item, self._redacted) for name, item in parsed.items()}

    def _redacted(self, text: str) -> str:
        """Remove the service's key and all other secrets from a text."""
        variable = self.service.settings.api_key_env
        key = os.environ.get(variable, "") if variable else ""
        return redact(text.replace(key, f"[{variable}]") if key else text)

    async def _content(self, response: aiohttp.ClientResponse) -> str:
        most, content = self.service.settings.max_answer_bytes, b""
        async for part in response.content.iter_any():
            content += part
            if len(content) > most:
                raise _Passing(f"the answer has more than {most} bytes; raise max_answer_bytes")
        return content.decode("utf-8", "replace")


def _answer_uri(key: str) -> str:
    return f"answers/{key[:2]}/{key}.json"
