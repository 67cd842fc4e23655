"""Messages between parts of `Episode.gather`."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from agentfly_core.rollout.episode_state import EpisodeState
from agentfly_core.rollout.history.timeline import EpisodeBranch

M = TypeVar("M")


class EpisodeMailbox(Generic[M]):
    """A queue of messages for one part of `gather`; `Episode.mailbox` creates it.

        inbox = episode.mailbox()

        async def speak() -> None:
            inbox.put((await speaker.reply(*episode.opening)).content)

        async def listen() -> None:
            await listener.reply(Message("user", await inbox.get()))

        await episode.gather(speak(), listen())

    Messages of one sender keep their order, but the order between several senders depends on
    timing. So give each sender its own mailbox.
    """

    def __init__(self, stage: EpisodeState) -> None:
        self._stage = stage
        self._messages = deque[tuple[M, int]]()
        self._reader: tuple[EpisodeBranch, asyncio.Future[None]] | None = None

    def put(self, message: M) -> None:
        """Add a message; the part that waits for it can continue."""
        self._messages.append((message, self._stage.branch.call))
        if self._reader is not None:
            branch, arrived = self._reader
            self._reader = None
            # the sender opens the reader's branch: otherwise the sender's next reply could start
            # before the reader has made its request
            self._stage.open()
            self._stage.parts.woken(branch)
            arrived.set_result(None)

    async def get(self) -> M:
        """Return and remove the next message; wait until there is one.

        Raises ServiceFailure at once if all parts of the episode wait for messages, and ValueError
        if another part already waits for this mailbox.
        """
        branch = self._stage.branch
        if self._reader is not None:
            raise ValueError("Two parts wait for one mailbox: make a mailbox for each of them.")
        if not self._messages:
            with branch.alone():
                await self._arrival(branch)
        message, time = self._messages.popleft()
        # the reader's next reply is later in recorded time than the message
        branch.least_call = max(branch.least_call, time)
        return message

    async def _arrival(self, branch: EpisodeBranch) -> None:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = branch, arrived
        self._stage.close()
        try:
            with self._stage.parts.waiting(branch, arrived):
                await arrived
        except BaseException:  # after a cancellation, too: the sampler must count this part again
            if arrived.cancelled() or arrived.exception():
                self._reader = None
                self._stage.open()
            raise
