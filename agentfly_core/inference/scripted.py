"""A sampler that returns the replies of a function, for demonstrations and tests."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.time_limits import on_loop
from agentfly_core.inference.sampler import NoReply, Request, SamplerSession
from agentfly_core.records.messages import reply_text
from agentfly_core.records.trajectory import Finish, Message, Sampled
from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.text import fault, first_stop
from agentfly_core.system.service import ServiceLost

ScriptedPolicy = Callable[[Conversation], Awaitable[str | Message]]
"""An async function that returns the reply to a Conversation: the exact text, or a Message."""


class Scripted(SamplerSession):
    """A sampler that returns the replies of an asynchronous function.

        async def policy(conversation: Conversation) -> str | Message:
            return ("<call 41+58>", "99")[conversation.turn]

        Scripted(encode, stop_token=2, policy=policy)

    `encode(text)` returns the tokens of a text. The reply ends with `stop_token`. If the policy
    returns a message, two optional functions are used: `write(message)` returns the text of the
    message, and `end(message)` returns the end token. By default, the text contains tool calls in
    the Hermes format, and the end token is `stop_token`.

    Log-probabilities are 0.0. The policy version of replies is -1 until `load` is called. Stop
    strings and length limits apply. ServiceFailure and ServiceLost from the policy are raised
    unchanged. Every other error becomes NoReply. The message of this NoReply contains the import
    path of the policy and the line of the error.
    """

    # the function returns whole replies
    continues: ClassVar[bool] = False

    def __init__(
        self,
        encode: Callable[[str], Sequence[int]],
        stop_token: int,
        policy: ScriptedPolicy,
        write: Callable[[Message], str] = reply_text,
        end: Callable[[Message], int] | None = None,
    ) -> None:
        self._encode, self._stop_token, self._policy = encode, stop_token, policy
        self._write, self._end = write, end
        # for an inner function, this is the name of the outer function
        written = policy if hasattr(policy, "__qualname__") else type(policy)
        name = written.__qualname__.partition(".<locals>")[0]
        self._called = f"The policy {written.__module__}:{name}"
        self._version = -1

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Set `version` as the policy version of later replies. No weights are loaded."""
        self._version = version

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[Scripted]:
        yield self

    def rest(self) -> None:
        """Do nothing, because this sampler uses no GPU."""

    async def sample(self, request: Request) -> Sampled:
        """Return the function's reply as tokens.

        Raises NoReply if the result is not text or a Message, or if the function raises an error.
        ServiceFailure and ServiceLost are raised unchanged.
        """
        reply = await self._reply(request.conversation)
        text = self._write(reply) if isinstance(reply, Message) else reply
        ended = self._end(reply) if self._end and isinstance(reply, Message) else self._stop_token
        stop = first_stop(text, request.params.stop)
        tokens = tuple(self._encode(text[: stop[1]] if stop else text))
        tokens += () if stop else (ended,)
        cut = tokens[: request.params.max_tokens]
        whole: Finish = "stop_string" if stop else "stop"
        return Sampled(cut, (0.0,) * len(cut), self._version, whole if cut == tokens else "length")

    async def _reply(self, conversation: Conversation) -> str | Message:
        call = partial(self._policy, conversation)
        try:
            reply = await on_loop(call, math.inf, self._called)
        except (NoReply, ServiceFailure, ServiceLost):
            raise
        except Exception as error:  # an author's function may raise any error
            where = tracebacks.own_line(error) or tracebacks.defined(self._policy)
            raise NoReply(
                f"{self._called} raised an error in its reply {conversation.turn + 1} to the "
                f"problem {conversation.problem.id!r} (conversation.chain: {conversation.chain}):\n"
                f"{tracebacks.trace(error)}\n{fault(error)}\nLook at {where}."
            ) from error
        if not isinstance(reply, str | Message):
            raise NoReply(
                f"{self._called} returned {reply!r:.80}, expected text or a Message. Look at "
                f"{tracebacks.defined(self._policy)}."
            )
        return reply
