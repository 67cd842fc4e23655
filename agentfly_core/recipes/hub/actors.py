"""Actors: agents of a hub in processes of their own, which survive kills by a journal.

An actor is forked from the hub's program, without imports. Its model calls go to OpenAI's API at a
path of its name. The journal contains each request to the actor with the replies of its model.
After a kill a new process repeats the journal without the model, then continues.
"""

import asyncio
import gc
import json
import os
import socket
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import partial
from http.client import HTTPException
from typing import Any

from agentfly_core import Message
from agentfly_core.recipes.hub.faults import AccessFault, HubFault, RequestFault
from agentfly_core.recipes.hub.model_agents import AgentModel
from agentfly_core.recipes.hub.participants import HubAgent, HubMessage

RESTARTS = 5
"""The most restarts of an actor amid one request."""
REPETITION = "x-stainless-retry-count"
"""The header of a repeated request."""
MODEL_FAULTS = {one.__name__: one for one in (AccessFault, RequestFault)}
"""The faults of model calls."""


class ActorFault(HubFault):
    """An actor raised an error, or died again and again."""


@dataclass
class JournalEntry:
    """A message to observe, or None for a request to reply, with the replies of the model.

    A failed call of the model has the fault in the place of a reply: `{"fault": "AccessFault",
    "text": "..."}`.
    """

    message: HubMessage | None
    replies: list[dict[str, Any]] = field(default_factory=list)


class Actor:
    """An agent in a process, made by `make` with its model at `{base_url}/{name}`."""

    def __init__(self, name: str, make: Callable[[AgentModel], HubAgent], base_url: str) -> None:
        self._name, self._make, self._url = name, make, f"{base_url}/{name}"
        self._journal, self._at = list[JournalEntry](), (0, 0)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def observe(self, message: HubMessage) -> None:
        await self._done(message)

    async def reply(self) -> str:
        return str(await self._done(None))

    async def _done(self, message: HubMessage | None) -> Any:
        """The result of a request; raises ActorFault."""
        self._journal.append(JournalEntry(message))
        for _ in range(RESTARTS + 1):
            # the connection of a killed process ends
            with suppress(ConnectionError):
                return await self._result()
            if self._streams:
                self._streams[1].close()
            self._streams = None
        raise ActorFault(f"an actor died {RESTARTS + 1} times amid one request")

    async def _result(self) -> Any:
        """The result of the last entry; replies of the model join their entries."""
        entry = self._journal[-1]
        if self._streams is None:
            # the new process has a copy of the journal
            link = _forked(self._serve)
            self._streams = await asyncio.open_connection(sock=link, limit=2**26)
        else:
            line = json.dumps(entry.message and astuple(entry.message))
            self._streams[1].write(line.encode() + b"\n")
        # a killed process may leave a part of a line
        while (line := (await self._streams[0].readline()).decode()).endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            if error := answer.get("error"):
                raise ActorFault(error)
            if "reply" not in answer:
                return answer["result"]
            self._journal[answer["entry"]].replies.append(answer["reply"])
        raise ConnectionError

    def _serve(self, link: socket.socket) -> None:
        """Repeat the journal in a process of its own, and answer its last entry and later ones."""
        waits_for = len(self._journal) - 1
        with link.makefile("r") as lines, asyncio.Runner() as runner:
            agent, number = self._make(partial(self._model, link)), 0
            while number < len(self._journal) or (line := lines.readline()):
                if number == len(self._journal):
                    message = json.loads(line)
                    self._journal.append(JournalEntry(message and HubMessage(*message)))
                self._at = number, 0
                answer = runner.run(_answer(agent, self._journal[number].message))
                if number >= waits_for:
                    _send(link, answer)
                number += 1

    async def _model(self, link: socket.socket, messages: Sequence[Message]) -> Message:
        number, call = self._at
        replies = self._journal[number].replies
        if call == len(replies):
            # without a number of its own, an equal later request would get the first reply; a call
            # after a fault has the number of the failed one
            answered = sum("fault" not in one for one in replies)
            replies.append(_completion(self._url, f"{self._name}/{number}/{answered}", messages))
            _send(link, {"entry": number, "reply": replies[call]})
        self._at = number, call + 1
        reply = replies[call]
        if "fault" in reply:
            raise MODEL_FAULTS[reply["fault"]](reply["text"])
        return Message("assistant", **reply)


async def _answer(agent: HubAgent, message: HubMessage | None) -> dict[str, Any]:
    try:
        return {"result": await (agent.observe(message) if message else agent.reply())}
    except Exception as error:  # of any agent
        return {"error": f"{type(error).__name__}: {error}"}


def _completion(url: str, model: str, messages: Sequence[Message]) -> dict[str, Any]:
    """The content of a completion and whether it is cut, or the fault of the call."""
    written = [{"role": one.role, "content": one.content} for one in messages]
    body = json.dumps({"model": model, "messages": written}).encode()
    # it may be the repetition of a killed process
    request = urllib.request.Request(f"{url}/chat/completions", body, {REPETITION: "1"})
    request.add_header("Authorization", f"Bearer {os.environ.get('OPENAI_API_KEY', '')}")
    try:
        with urllib.request.urlopen(request) as response:
            (choice,) = json.load(response)["choices"]
    except (OSError, HTTPException) as error:
        refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
        return {"fault": (RequestFault if refused else AccessFault).__name__, "text": f"{error}"}
    return {"content": choice["message"]["content"], "cut": choice["finish_reason"] == "length"}


def _send(link: socket.socket, value: dict[str, Any]) -> None:
    link.sendall(json.dumps(value).encode() + b"\n")


def _forked(serve: Callable[[socket.socket], None]) -> socket.socket:
    """The connection to a forked process that serves it."""
    ours, theirs = socket.socketpair()
    # a process in the same group, which its program's owner kills
    if os.fork():
        theirs.close()
        return ours
    try:
        # connections of other actors must end with their owners
        gc.freeze()
        os.closerange(3, theirs.fileno())
        os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        serve(theirs)
    except BaseException:  # the boundary of a forked process, which must not return
        traceback.print_exc()
    finally:
        os._exit(0)
