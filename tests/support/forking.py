"""An agent that forks its episodes."""

from agentfly_core import Ending, Episode, Message

FORKING = "tests.support.forking:forking"


async def forking(episode: Episode) -> Ending:
    """Reply, fork, and reply to another question in each of the two leaves."""
    await episode.reply(*episode.opening)
    way = await episode.fork(1)
    await episode.reply(Message("user", f"Way {way}?"))
    return Ending.NO_TOOL_CALLS
