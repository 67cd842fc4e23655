"""The default agent, which executes tool calls until a reply has none."""

from collections.abc import Sequence

from agentfly_core.records.trajectory import Ending, Message, Observation
from agentfly_core.rollout.episode import Episode


async def tool_loop(episode: Episode) -> Ending:
    """Alternate replies and tool answers until a reply without calls."""
    read: Sequence[Message | Observation] = episode.opening
    while True:
        reply = await episode.reply(*read)
        if not reply.calls:
            return Ending.NO_TOOL_CALLS
        read = await episode.call(*reply.calls)
