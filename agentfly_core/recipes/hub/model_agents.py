"""A model as an agent of a hub."""

from collections.abc import Awaitable, Callable, Sequence

from agentfly_core import Message
from agentfly_core.recipes.hub.faults import Faults, ReplyParser
from agentfly_core.recipes.hub.participants import HubMessage

AgentModel = Callable[[Sequence[Message]], Awaitable[Message]]
"""Replies to a conversation; raises AccessFault and RequestFault."""


class ModelAgent:
    """An agent whose replies a model writes; `system` are its instructions.

    All messages since the last reply are one user message, a line for each. The audience gets the
    field `say` of a reply.
    """

    def __init__(self, system: str, model: AgentModel, parser: ReplyParser, faults: Faults) -> None:
        self._model, self._parser, self._faults = model, parser, faults
        self._memory, self._lines = [Message("system", system)], list[str]()

    async def observe(self, message: HubMessage) -> None:
        self._lines.append(f"{message.sender}: {message.content}")

    async def reply(self) -> str:
        return str((await self._faults.fields(self._ask, self._parser))["say"])

    async def _ask(self, fault: str) -> Message:
        """Sample a reply to new messages and the fault of the last reply; both join the memory."""
        lines = [*self._lines, *([f"Your reply cannot be read: {fault}."] if fault else [])]
        request = Message("user", "\n".join(lines) or "Speak.")
        reply = await self._model([*self._memory, request])
        self._memory += [request, reply]
        self._lines.clear()
        return reply
