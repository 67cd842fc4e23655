"""An agent of a hub with replies by a model."""

from collections.abc import Awaitable, Callable, Sequence

from agentfly_core import Message
from agentfly_core.recipes.hub.faults import Faults, ReplyParser
from agentfly_core.recipes.hub.participants import HubMessage

AgentModel = Callable[[Sequence[Message]], Awaitable[Message]]
"""A function from a list of messages to the model's reply; raises AccessFault and RequestFault."""


class ModelAgent:
    """An agent that replies by a model.

    `system` is the text of the system message. The next user message has one line for each message
    that the agent observed since its last reply. The audience gets only the field `say` of the
    model's reply.
    """

    def __init__(self, system: str, model: AgentModel, parser: ReplyParser, faults: Faults) -> None:
        self._model, self._parser, self._faults = model, parser, faults
        self._memory, self._lines = [Message("system", system)], list[str]()

    async def observe(self, message: HubMessage) -> None:
        self._lines.append(f"{message.sender}: {message.content}")

    async def reply(self) -> str:
        return str((await self._faults.fields(self._ask, self._parser))["say"])

    async def _ask(self, fault: str) -> Message:
        """Call the model with new messages and the last fault, and remember request and reply."""
        lines = [*self._lines, *([f"Your reply cannot be read: {fault}."] if fault else [])]
        request = Message("user", "\n".join(lines) or "Speak.")
        reply = await self._model([*self._memory, request])
        self._memory += [request, reply]
        self._lines.clear()
        return reply
