"""The agent `team`: all five members run in this process. Each is a speaker of the episode."""

from collections.abc import Sequence

from agentfly_core import Ending, Episode, Message, Speaker
from agentfly_core.recipes.hub.faults import Faults
from agentfly_core.recipes.hub.model_agents import AgentModel
from agentfly_core.recipes.hub.team import CHAIR, MEMBERS, conversation, member


async def team(episode: Episode) -> Ending:
    """Play the conversation in which four members and a chair combine four digits into a number.

    The problem's fact `digits` has one digit for each member except the chair. These members form
    two pairs. The fact `first` names the pair that reports first: north or south.
    """
    facts = episode.problem.facts
    speakers = {name: episode.speaker(name) for name in MEMBERS}
    faults = Faults(episode.counts)
    agents = {
        name: member(name, facts["digits"], faults, model_of(episode, speaker))
        for name, speaker in speakers.items()
    }
    number = await conversation(agents, episode.problem.prompt, facts["first"])
    speakers[CHAIR].answer(number)
    return Ending.NO_TOOL_CALLS


def model_of(episode: Episode, speaker: Speaker) -> AgentModel:
    """Return a function that calls a speaker's model.

    Several agents can call the returned function at the same time.
    """

    async def model(messages: Sequence[Message]) -> Message:
        async with episode.branch():
            return await speaker.reply_to(messages)

    return model
