"""Handle the requests of one episode at the gateway: select the speaker (participant) that replies,
answer repeated requests, and record rewards.
"""

import asyncio
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Self, TypeVar

from pydantic import BaseModel, model_validator

from agentfly_core.gateway.chat import CompletionRequest, RequestRefused, request_of
from agentfly_core.inference.sampler import NoReply
from agentfly_core.records.trajectory import Ending, Message
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.history.timeline import Reply
from agentfly_core.rollout.rules import EpisodeOver, PromptTooLong
from agentfly_core.rollout.speaker import Speaker
from agentfly_core.system.formats import hashing, strict_json
from agentfly_core.system.formats.json_value import JSON, require_levels
from agentfly_core.system.formats.text import fault

R = TypeVar("R")
MOST_BYTES = 4 * 1024 * 1024
REPLY_BYTES, TOKEN_BYTES = 4000, 64
"""Estimated memory in bytes: for each reply, and for each token that was read or sampled."""


@dataclass(frozen=True)
class HttpCall:
    """A POST request to `{base}/PART/chat/completions`.

    - `part`: the PART of this path. The field `path` of a `SpeakerPattern` selects a speaker
      (participant of the episode) by this part.
    - `headers`: the HTTP headers, with names in lower case
    - `connected`: a function that returns whether the client still waits for the response
    """

    body: str
    part: str
    headers: Mapping[str, str]
    connected: Callable[[], bool]

    @cached_property
    def request(self) -> CompletionRequest:
        """The parsed body. Raises RequestRefused if the body is invalid."""
        try:
            body: JSON = json.loads(self.body)  # its texts may contain NUL
            require_levels(body, strict_json.MAX_DEPTH)
            json.dumps(body, ensure_ascii=False).encode()  # refuses lone surrogates
        except RecursionError:
            raise RequestRefused("The body is not JSON: it has too many levels.") from None
        except ValueError as error:
            raise RequestRefused(f"The body is not JSON: {error}.") from error
        return request_of(body)

    @property
    def is_retry(self) -> bool:
        """Whether the client has marked the request as a retry."""
        return self.headers.get("x-stainless-retry-count", "0") != "0"


class SpeakerPattern(BaseModel, frozen=True, extra="forbid"):
    """Selects the requests of a speaker by model name, URL path, header or system message.

    Examples: `{model: "critic-*"}`, `{path: critic}`, `{header: "x-agent: critic"}` and `{system:
    "^You review"}`. The value of `system` is a regular expression. A request must match all
    patterns that are given.
    """

    model: str = ""
    path: str = ""
    header: str = ""
    system: str = ""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not any((self.model, self.path, self.header, self.system)):
            raise ValueError("expected at least one of the keys model, path, header and system")
        re.compile(self.system)
        return self

    def fits(self, request: CompletionRequest, call: HttpCall) -> bool:
        """Whether a request matches all patterns that are not empty.

        `call` is the HTTP request that contained `request`.
        """
        name, _, value = self.header.partition(":")
        first = request.messages[0]
        system = first.content if isinstance(first, Message) and first.role == "system" else ""
        return (
            fnmatchcase(request.model, self.model or "*")
            and self.path in ("", call.part)
            and (not name or call.headers.get(name.strip().lower(), "") == value.strip())
            and (not self.system or re.search(self.system, system) is not None)
        )


@dataclass(eq=False)
class Exchange:
    """A request of a client, with the replies to it.

    - `replies`: the task that returns the replies
    - `connected`: a function that returns whether the client still waits for the replies. If the
      client repeats the request, `connected` is replaced by a function for the new request.
    - `received`: whether a client has received the replies

    The body of the request is not kept. Each body contains the whole conversation, so the size of
    all bodies grows with the square of the number of turns.
    """

    replies: asyncio.Task[list[Reply]]
    connected: Callable[[], bool]
    received: bool = False

    @property
    def lost(self) -> bool:
        """Whether the client disconnected before it received the replies."""
        return not self.received and not self.connected()

    @property
    def failed(self) -> bool:
        """Whether the request ended with an error instead of replies."""
        return self.replies.done() and (
            self.replies.cancelled() or self.replies.exception() is not None
        )


class GatewaySession:
    """The requests of one episode.

    `speakers` maps the roles of speakers (participants) to patterns. A request belongs to the
    speaker of the first pattern that it matches. All other requests belong to the main
    speaker, which is not in `speakers`. A request of the main speaker is refused if its URL
    contains a PART (see `HttpCall`).

    If an error ends the episode, the future `broken` raises this error. `limit` is the last limit
    that refused a request or ended a reply. `last` is the last reply with its speaker. `bytes` is
    an estimate of the memory that all replies occupy.
    """

    def __init__(self, episode: Episode, speakers: Mapping[str, SpeakerPattern]) -> None:
        self.token = secrets.token_hex(16)
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.limit: Ending | None = None
        self.last: tuple[Speaker, Reply] | None = None
        self.bytes = 0
        self.episode, self._patterns = episode, speakers
        self._others = {role: episode.speaker(role) for role in speakers}
        self._exchanges: dict[str, list[Exchange]] = {}
        self._begun = Counter[str]()

    @property
    def models(self) -> list[str]:
        """The model names for the client: the name of each speaker (participant) of the episode."""
        return [self.episode.name, *self._others]

    @property
    def replies(self) -> int:
        """The number of replies, including those in progress."""
        return self._begun.total()

    async def result(self, work: Coroutine[Any, Any, R], seconds: float) -> R:
        """Run the coroutine `work`, and return its result.

        `work` runs the program that sends the requests of this session, or waits until the program
        ends. Raises TimeoutError if the program does not end within `seconds`. If an error ends the
        episode, this error is raised.
        """
        task = asyncio.create_task(work)
        try:
            first, ends = asyncio.FIRST_COMPLETED, set[asyncio.Future[Any]]({task, self.broken})
            await asyncio.wait(ends, timeout=seconds, return_when=first)
            if self.broken.done():
                self.broken.result()
            if not task.done():
                raise TimeoutError(
                    f"The program did not end within {seconds:g} s. Raise agent.deadline."
                )
            return await task
        finally:
            task.cancel()

    async def complete(self, call: HttpCall) -> Exchange:
        """Reply to a request. Return the Exchange (the request with its replies) after its replies
        are complete.

        Raises RequestRefused if the request is invalid, a limit is reached, or the episode fails.
        """
        request = call.request
        speaker = self._speaker(request, call)
        same = self._exchanges.setdefault(hashing.digest([speaker.name, call.body]), [])
        lost = [one for one in same if one.lost]
        # a repeated request gets the replies to the original request
        exchange = lost[0] if lost else same[-1] if call.is_retry and same else None
        if exchange is None:
            self.episode.counts.update(f"gateway/overruled/{one}" for one in request.overruled)
            replies = asyncio.create_task(self._replies(speaker, request))
            exchange = Exchange(replies, call.connected)
            same.append(exchange)
        exchange.connected = call.connected
        try:
            # not cancelled when the client disconnects, because its retry gets the same replies
            await asyncio.shield(exchange.replies)
        finally:
            # discarded, because the traceback of an error would keep the whole request in memory
            same[:] = [one for one in same if not one.failed]
        return exchange

    def reward(self, body: str) -> None:
        """Add a reward to the last reply. The body is JSON such as `{"value": 0.5}`.

        Raises RequestRefused for any other body, or before the first reply of the episode.
        """
        try:
            match strict_json.parse(body):
                case {"value": int() | float() as value} if self.last:
                    self.last[1].earned.append(float(value))
                    return
        except ValueError as error:
            raise RequestRefused(f"The body is not JSON: {error}.") from error
        raise RequestRefused(
            f'Got the reward {body[:80]!r}, expected {{"value": NUMBER}}. Send a reward after the '
            "reply that earned it."
        )

    def answer(self, text: str) -> None:
        """Set the episode's answer. The speaker that replied last is recorded as its author."""
        speaker = self.last[0] if self.last else self.episode
        speaker.answer(text)

    def close(self) -> None:
        """Cancel the replies in progress. Finished replies that the client did not receive are
        excluded from training.
        """
        for exchange in (one for same in self._exchanges.values() for one in same):
            # `cancel` returns False if the replies are done
            if not exchange.replies.cancel() and not exchange.failed and not exchange.received:
                for reply in exchange.replies.result():
                    reply.trained = False

    def _speaker(self, request: CompletionRequest, call: HttpCall) -> Speaker:
        fitting = (r for r, pattern in self._patterns.items() if pattern.fits(request, call))
        role = next(fitting, None)
        if role is None and call.part:
            raise RequestRefused(
                f"No entry of agent.speakers matches the path {call.part!r} in the URL. Correct "
                "the URL or the entries.",
                404,
            )
        return self.episode if role is None else self._others[role]

    async def _replies(self, speaker: Speaker, request: CompletionRequest) -> list[Reply]:
        self._require(speaker, request)
        self._begun[speaker.name] += request.n
        with_own_branches = (self._reply(speaker, request) for _ in range(request.n))
        try:
            return [*await asyncio.gather(*map(asyncio.create_task, with_own_branches))]
        except EpisodeOver as over:
            raise self._over(over) from over
        except (PromptTooLong, NoReply) as error:
            raise self._broke(error) from error
        except ValueError as error:
            raise RequestRefused(str(error)) from error
        except Exception as error:  # the agent raises it and ends the episode
            raise self._broke(error) from error

    async def _reply(self, speaker: Speaker, request: CompletionRequest) -> Reply:
        sampling, most = request.sampling.copy(), speaker.rules.max_tokens
        sampling["max_tokens"] = min(sampling.get("max_tokens") or most, most)
        try:
            async with self.episode.branch():
                reply = await speaker.turn(request.messages, **sampling)
        except BaseException:  # also cancelled: only replies count as turns
            self._begun[speaker.name] -= 1
            raise
        self.last, self.limit = (speaker, reply), reply.limit or self.limit
        self.bytes += REPLY_BYTES + TOKEN_BYTES * (len(reply.given) + len(reply.tokens))
        return reply

    def _require(self, speaker: Speaker, request: CompletionRequest) -> None:
        """Raise RequestRefused if a request exceeds the speaker's turn limit.

        Also raise RequestRefused for a stop string that is not in `agent.stop`. Replies in progress
        count as turns.
        """
        if self._begun[speaker.name] + request.n > speaker.rules.max_turns:
            raise self._over(EpisodeOver(Ending.MAX_TURNS))
        stop = request.sampling.get("stop") or ()
        if unknown := [one for one in stop if one not in speaker.rules.stop]:
            raise RequestRefused(
                f"The request's `stop` contains {unknown[0]!r}, which is not in agent.stop. "
                "Add this string to agent.stop.",
                param="stop",
            )

    def _over(self, over: EpisodeOver) -> RequestRefused:
        self.limit = over.ending
        full = over.ending is Ending.MAX_MODEL_LEN
        code = "context_length_exceeded" if full else over.ending.value
        return RequestRefused(f"The episode has no further reply: {over}", code=code)

    def _broke(self, error: Exception) -> RequestRefused:
        if not self.broken.done():
            self.broken.set_exception(error)
            self.broken.exception()  # marks the error as read if the agent has ended
        return RequestRefused(f"The episode failed: {fault(error)}", 500)
