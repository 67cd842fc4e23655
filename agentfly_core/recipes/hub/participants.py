"""Participants of message hubs. A participant processes messages in order. Each request for a reply
returns a placeholder, i.e. the future reply.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HubMessage:
    """A message with its id, sender and content: `HubMessage("north/1", "north", "4")`."""

    id: str
    sender: str
    content: str


async def finished(work: Iterable[Awaitable[R]]) -> list[R]:
    """Await all of `work` concurrently, and return the results.

    If some of the work fails, wait for the rest, and then raise the first error.
    """
    results = await asyncio.gather(*work, return_exceptions=True)
    if errors := [one for one in results if isinstance(one, BaseException)]:
        raise errors[0]
    return [one for one in results if not isinstance(one, BaseException)]


class HubAgent(Protocol):
    """An agent that reads messages and writes replies. A Participant connects an agent to hubs."""

    async def observe(self, message: HubMessage) -> None:
        """Read a message. Each message is passed to this method only once."""

    async def reply(self) -> str:
        """Return the content of the agent's next message."""


class Placeholder(Generic[R]):
    """The future result of work that has begun.

    `await placeholder` waits for the work, and then returns the result or raises the work's error.
    """

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        self._task, self.awaited = asyncio.create_task(work), False

    def __await__(self) -> Generator[Any, None, R]:
        self.awaited = True
        return self._task.__await__()

    async def error(self) -> BaseException | None:
        """Wait until the placeholder's work has ended. Return the error of the work, or None if
        the work succeeded.
        """
        await asyncio.wait([self._task])
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception()


Delivery = HubMessage | Placeholder[HubMessage]


class Participant:
    """An agent with a name and an audience: the participants that observe its replies.

        draft = writer()             # begins to work
        review = critic(draft)       # works after the draft
        print((await review).content)

    Calling a participant requests a reply. A participant processes requests and messages in the
    order of the calls. A participant can join several groups, such as hubs, and leave them again.
    Among the groups that the participant has not left, the group that was joined last is current.
    Only the other members of the current group observe a reply. The audience is fixed when the
    reply is requested. Each message of another participant is observed only once, even if the
    message is also passed to a call. Failed replies are not delivered to the audience.
    """

    def __init__(self, name: str, agent: HubAgent) -> None:
        self.name, self.joined = name, list[list["Participant"]]()
        self._agent = agent
        self._last: Placeholder[Any] | None = None
        self._work, self._observed, self._count = list[Placeholder[Any]](), set[str](), 0

    @property
    def audience(self) -> Sequence["Participant"]:
        """The other members of the current group. They are the observers of a new reply."""
        return [one for group in self.joined[-1:] for one in group if one is not self]

    def __call__(self, message: Delivery | None = None) -> Placeholder[HubMessage]:
        """Observe `message` if it is given, and then begin a reply for the `audience`."""
        if message is not None:
            self.observe(message)
        self._count += 1
        reply = self._begin(self._reply(f"{self.name}/{self._count}"))
        for one in self.audience:
            one.observe(reply)
        return reply

    def observe(self, message: Delivery) -> None:
        """Observe a message in the background.

        The participant first finishes the replies and observations that were requested earlier.
        """
        self._begin(self._observe(message))

    async def settled(self) -> None:
        """Wait until all requested replies and observations of this participant have ended.

        Then raise their first error. Errors of replies that were awaited are not raised again.
        """
        work, self._work = self._work, []
        if errors := [e for one in work if (e := await one.error()) and not one.awaited]:
            raise errors[0]

    def _begin(self, work: Coroutine[Any, Any, R]) -> Placeholder[R]:
        before = self._last

        async def after() -> R:
            if before is not None:
                await before.error()
            return await work

        self._last = begun = Placeholder(after())
        self._work.append(begun)
        return begun

    async def _reply(self, message_id: str) -> HubMessage:
        return HubMessage(message_id, self.name, await self._agent.reply())

    async def _observe(self, message: Delivery) -> None:
        if isinstance(message, Placeholder):
            if await message.error():
                return
            message = await message
        if message.sender != self.name and message.id not in self._observed:
            self._observed.add(message.id)
            await self._agent.observe(message)
