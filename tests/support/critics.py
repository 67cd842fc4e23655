"""An agent that hears a critic before its second reply."""

from agentfly_core.records.trajectory import Ending, Message
from agentfly_core.rollout.episode import Episode


async def criticised(episode: Episode) -> Ending:
    """Reply, have tools and the critic answer, and reply again."""
    critic = episode.speaker("critic", system="Be strict.", max_turns=1)
    reply = await episode.reply(*episode.opening)
    heard = await critic.reply(Message("user", reply.content or "I say nothing."))
    answers = await episode.call(*reply.calls)
    await episode.reply(*answers, Message("user", heard.content))
    return Ending.NO_TOOL_CALLS
