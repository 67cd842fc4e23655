"""The default agent. It executes tool calls until a reply contains no call."""

from agentfly_core.records.trajectory import Ending, Message, Observation
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.speaker import Speaker


async def tool_loop(episode: Episode) -> Ending:
    """Sample replies and execute their tool calls, until a reply contains no call."""
    await last_reply(episode, *episode.opening)
    return Ending.NO_TOOL_CALLS


async def last_reply(speaker: Speaker, *read: Message | Observation) -> Message:
    """Sample replies and execute their tool calls. Return the first reply without a call.

    `read` has the messages that the speaker reads before its first reply.
    """
    reply = await speaker.reply(*read)
    while reply.calls:
        reply = await speaker.reply(*await speaker.call(*reply.calls))
    return reply
