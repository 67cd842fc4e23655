"""Messages between concurrent coroutines of `Episode.gather`."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from agentfly_core.rollout.episode_state import EpisodeState
from agentfly_core.rollout.history.timeline import EpisodeBranch

M = TypeVar("M")


class EpisodeMailbox(Generic[M]):
    """A queue of messages for one coroutine of `gather`; create it with `Episode.mailbox`.

        inbox = episode.mailbox()

        async def speak() -> None:
            inbox.put((await speaker.reply(*episode.opening)).content)

        async def listen() -> None:
            await listener.reply(Message("user", await inbox.get()))

        await episode.gather(speak(), listen())

    Messages of one sender arrive in the order of the calls of `put`. If several senders use one
    mailbox, the order depends on timing, so create one mailbox for each sender.
    """

    def __init__(self, state: EpisodeState) -> None:
        self._state = state
        self._messages = deque[tuple[M, int]]()
        self._reader: tuple[EpisodeBranch, asyncio.Future[None]] | None = None

    def put(self, message: M) -> None:
        """Add a message, and wake the coroutine that waits for a message."""
        self._messages.append((message, self._state.branch.call))
        if self._reader is not None:
            branch, arrived = self._reader
            self._reader = None
            # `put` already marks the reader's branch as open. Otherwise the sender's next reply
            # could start before the reader has requested a reply.
            self._state.open()
            self._state.parts.woken(branch)
            arrived.set_result(None)

    async def get(self) -> M:
        """Wait for the next message, remove it from the mailbox and return it.

        Raises ServiceFailure if all coroutines of the episode wait for messages, and ValueError if
        another coroutine already waits at this mailbox.
        """
        branch = self._state.branch
        if self._reader is not None:
            raise ValueError(
                "Two coroutines wait for messages of the same mailbox. Create a mailbox for each "
                "coroutine."
            )
        if not self._messages:
            with branch.alone():
                await self._arrival(branch)
        message, time = self._messages.popleft()
        # in the recorded order, the reader's next reply comes after the message
        branch.least_call = max(branch.least_call, time)
        return message

    async def _arrival(self, branch: EpisodeBranch) -> None:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = branch, arrived
        self._state.close()
        try:
            with self._state.parts.waiting(branch, arrived):
                await arrived
        except BaseException:  # also after a cancellation, the sampler must count this branch again
            if arrived.cancelled() or arrived.exception():
                self._reader = None
                self._state.open()
            raise
