"""Actors: agents of a hub (a group of agents), each in its own process.

An actor is a fork of the hub's process, so all modules are already imported. An actor calls its
model by OpenAI's API at a base URL that ends with the actor's name. The hub keeps a journal for
each actor: all requests to the actor, with the replies of the model. If the actor's process is
killed, a new process replays the journal without calling the model, then continues.
"""

import asyncio
import gc
import json
import os
import socket
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import partial
from http.client import HTTPException
from itertools import chain
from typing import Any

from agentfly_core import Message
from agentfly_core.recipes.hub.faults import AccessFault, Faults, HubFault, RequestFault
from agentfly_core.recipes.hub.model_agents import AgentModel
from agentfly_core.recipes.hub.participants import HubAgent, HubMessage

AgentMaker = Callable[[Faults, AgentModel], HubAgent]
RESTARTS = 5
"""The maximum number of restarts of an actor during one request."""


class ActorFault(HubFault):
    """An actor raised an error, or died more than RESTARTS times during one request."""


@dataclass
class JournalEntry:
    """A request to an actor (an agent in its own process), with the replies of the actor's model.

    `message` is a message that the actor must read. If `message` is None, the actor must return its
    own next message. `replies` has one entry for each call of the model during the request. The
    entry of a failed call is `{"fault": "...", "refused": False}`. `refused` is True for an HTTP
    status below 500.
    """

    message: HubMessage | None
    replies: list[dict[str, Any]] = field(default_factory=list)


class Actor:
    """An agent of a hub (a group of agents), which runs in its own process.

    The process calls the function `make` to create the agent. The agent calls its model at the base
    URL `{base_url}/{name}`. `counts` shows how often each remedy for a faulty model
    call or reply was used: `{"hub/retry": 2}` means two repeated calls.
    """

    def __init__(self, name: str, make: AgentMaker, base_url: str) -> None:
        self._name, self._make, self._url = name, make, f"{base_url}/{name}"
        self.counts: Mapping[str, int] = {}
        self._journal = list[JournalEntry]()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def observe(self, message: HubMessage) -> None:
        await self._done(message)

    async def reply(self) -> str:
        return str(await self._done(None))

    async def _done(self, message: HubMessage | None) -> Any:
        """Send a request to the actor's process and return the result. Restart a killed process.

        Raises ActorFault if the agent raises an error, or dies too often during this request.
        """
        self._journal.append(JournalEntry(message))
        for _ in range(RESTARTS + 1):
            # the connection to a killed process ends, and its request is repeated
            with suppress(ConnectionError):
                return await self._result()
            if self._streams:
                self._streams[1].close()
            self._streams = None
        raise ActorFault(f"the actor {self._name} died {RESTARTS + 1} times during one request")

    async def _result(self) -> Any:
        """Return the result of the last request in the journal (the list of all requests so far).

        The actor's process first sends each reply of its model, then the result. Each reply of
        the model is added to the request's entry in the journal.
        """
        if self._streams is None:
            # a new process reads the request from its copy of the journal
            self._streams = await asyncio.open_connection(sock=_forked(self._serve), limit=2**26)
        else:
            message = self._journal[-1].message
            self._streams[1].write(json.dumps(message and astuple(message)).encode() + b"\n")
        # a killed process may leave an incomplete line
        while (line := (await self._streams[0].readline()).decode()).endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            # these are totals, because a new process replays the journal and counts from 0
            self.counts = answer.get("counts", self.counts)
            if error := answer.get("error"):
                raise ActorFault(error)
            if "reply" not in answer:
                return answer["result"]
            self._journal[answer["entry"]].replies.append(answer["reply"])
        raise ConnectionError

    def _serve(self, link: socket.socket) -> None:
        """Answer requests in the forked process.

        After a restart, the agent first processes the requests in the journal (all requests so far)
        again, with the recorded replies of the model. Only the last of these requests is answered,
        because the hub already has the answers to the earlier requests.
        """
        waits_for, faults = len(self._journal) - 1, Faults()
        with link.makefile("r") as lines, asyncio.Runner() as runner:
            agent = self._make(faults, partial(self._model, link))
            later = (JournalEntry(new and HubMessage(*new)) for new in map(json.loads, lines))
            for number, entry in enumerate(chain(self._journal, later)):
                self._at = number, entry, 0
                answer = runner.run(_answer(agent, entry.message))
                if number >= waits_for:
                    _send(link, {**answer, "counts": faults.counts})

    async def _model(self, link: socket.socket, messages: Sequence[Message]) -> Message:
        number, entry, call = self._at
        if call == len(entry.replies):
            # the number makes equal requests different, else the second would get the first
            # reply; a call after a fault repeats the number of the failed call
            answered = sum("fault" not in one for one in entry.replies)
            name = f"{self._name}/{number}/{answered}"
            entry.replies.append(_completion(self._url, name, messages))
            _send(link, {"entry": number, "reply": entry.replies[call]})
        self._at, reply = (number, entry, call + 1), entry.replies[call]
        if "fault" in reply:
            raise (RequestFault if reply["refused"] else AccessFault)(reply["fault"])
        return Message("assistant", **reply)


async def _answer(agent: HubAgent, message: HubMessage | None) -> dict[str, Any]:
    try:
        return {"result": await (agent.observe(message) if message else agent.reply())}
    except Exception as error:  # of any agent
        return {"error": f"{type(error).__name__}: {error}"}


def _completion(url: str, model: str, messages: Sequence[Message]) -> dict[str, Any]:
    """Call the model, and return `{"content": ..., "cut": ...}` with its reply.

    `cut` is True if a token limit ended the reply. For a failed call, return `{"fault": ...,
    "refused": ...}`. `refused` is True for an HTTP status below 500.
    """
    written = [{"role": one.role, "content": one.content} for one in messages]
    body = json.dumps({"model": model, "messages": written}).encode()
    # a killed process may have sent the same request before
    repeated = {"x-stainless-retry-count": "1"}
    request = urllib.request.Request(f"{url}/chat/completions", body, repeated)
    request.add_header("Authorization", f"Bearer {os.environ.get('OPENAI_API_KEY', '')}")
    try:
        with urllib.request.urlopen(request) as response:
            (choice,) = json.load(response)["choices"]
    except (OSError, HTTPException) as error:
        refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
        return {"fault": f"{error}", "refused": refused}
    return {"content": choice["message"]["content"], "cut": choice["finish_reason"] == "length"}


def _send(link: socket.socket, value: dict[str, Any]) -> None:
    link.sendall(json.dumps(value).encode() + b"\n")


def _forked(serve: Callable[[socket.socket], None]) -> socket.socket:
    """Fork a process that runs `serve`, and return the connection to it."""
    ours, theirs = socket.socketpair()
    # the child stays in the process group, which the owner of the program kills
    if os.fork():
        theirs.close()
        return ours
    try:
        # close copies of other actors' connections, which must end with those actors
        gc.freeze()
        os.closerange(3, theirs.fileno())
        os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        serve(theirs)
    except BaseException:  # the boundary of a forked process, which must not return
        traceback.print_exc()
    finally:
        os._exit(0)
