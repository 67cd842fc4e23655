"""The default agent. It executes tool calls until a reply contains no call."""

from collections.abc import Sequence

from agentfly_core.records.trajectory import Ending, Message, Observation
from agentfly_core.rollout.episode import Episode


async def tool_loop(episode: Episode) -> Ending:
    """Sample replies and execute their tool calls, until a reply contains no call."""
    read: Sequence[Message | Observation] = episode.opening
    while True:
        reply = await episode.reply(*read)
        if not reply.calls:
            return Ending.NO_TOOL_CALLS
        read = await episode.call(*reply.calls)
