"""Message hubs: `async with` blocks that deliver each member's replies to the other members."""

from collections.abc import Iterable
from contextlib import nullcontext, suppress

from agentfly_core.recipes.hub.participants import HubMessage, Participant, finished


class MessageHub:
    """An `async with` block that delivers each reply of a member to the other members.

        async with MessageHub([north, east], announcement) as hub:
            await north()
            hub.add(south)

    At the beginning of the block, all members get the message `announcement`, if it is given.

    Hubs can be nested. Within the inner block, replies of the inner hub's members go only to the
    inner hub. After the inner block, the replies of these members go to the outer hub again, even
    if the block raised an exception.

    At the end of its block, a hub waits until its members have finished all replies and have read
    all messages. If a reply or the reading of a message failed, the hub then raises the first of
    these errors. Errors of replies that were awaited are not raised again. If the block itself
    raised an exception, only this exception is raised.
    """

    def __init__(
        self, participants: Iterable[Participant], announcement: HubMessage | None = None
    ) -> None:
        self.members = list[Participant]()
        self._first, self._announcement = participants, announcement
        self._everybody = dict[Participant, None]()

    async def __aenter__(self) -> "MessageHub":
        for one in self._first:
            self.add(one)
        if self._announcement is not None:
            self.broadcast(self._announcement)
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        for one in [*self.members]:
            self.remove(one)
        # an error of the block itself takes precedence
        with suppress(Exception) if error else nullcontext():
            await finished(one.settled() for one in self._everybody)

    def add(self, participant: Participant) -> None:
        """Add a participant. If it is already a member, do nothing."""
        if participant not in self.members:
            self.members.append(participant)
            self._everybody[participant] = None
            participant.joined.append(self.members)

    def remove(self, participant: Participant) -> None:
        """Remove a member. Raises ValueError for a participant that is not a member."""
        self.members.remove(participant)
        # `is`, because the lists of two hubs may be equal
        participant.joined[:] = [one for one in participant.joined if one is not self.members]

    def broadcast(self, message: HubMessage) -> None:
        """Send a message to all members."""
        for one in self.members:
            one.observe(message)
