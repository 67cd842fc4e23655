"""The default agent: it talks and calls tools until a reply calls none."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.records.trajectory import Ending, Message, Observation
from agentfly_core.rollout.episode import Episode


async def tool_loop(episode: Episode) -> Ending:
    """Let the model reply, answer its calls, let it read the answers, and so on."""
    read: Sequence[Message | Observation] = episode.opening
    while True:
        reply = await episode.reply(*read)
        if not reply.calls:
            return Ending.NO_TOOL_CALLS
        read = await episode.call(*reply.calls)
