"""An agent of a message hub (a group of speakers). A model writes the agent's replies."""

from collections.abc import Awaitable, Callable, Sequence

from agentfly_core import Message
from agentfly_core.recipes.hub.faults import Faults, ReplyParser
from agentfly_core.recipes.hub.participants import HubMessage

AgentModel = Callable[[Sequence[Message]], Awaitable[Message]]
"""A function that sends messages to a model and returns the model's reply.

The function raises AccessFault if the model cannot be reached, and RequestFault if the model
refuses the request.
"""


class ModelAgent:
    """An agent that gets its replies from a model.

    `system` is the text of the system message. Each user message has one line for each message that
    the agent observed since its last reply. `parser` reads named fields from the model's reply. The
    field `say` is the agent's reply.
    """

    def __init__(self, system: str, model: AgentModel, parser: ReplyParser, faults: Faults) -> None:
        self._model, self._parser, self._faults = model, parser, faults
        self._memory, self._lines = [Message("system", system)], list[str]()

    async def observe(self, message: HubMessage) -> None:
        self._lines.append(f"{message.sender}: {message.content}")

    async def reply(self) -> str:
        return str((await self._faults.fields(self._ask, self._parser))["say"])

    async def _ask(self, fault: str) -> Message:
        """Call the model with the new messages. Remember the request and the reply.

        If `fault` is not "", the request also contains the reason why the last reply could not be
        read.
        """
        lines = [*self._lines, *([f"Your reply cannot be read: {fault}."] if fault else [])]
        request = Message("user", "\n".join(lines) or "Speak.")
        reply = await self._model([*self._memory, request])
        self._memory += [request, reply]
        self._lines.clear()
        return reply
