"""A custom experiment: questions about capitals and an atlas with the answers."""

from collections.abc import Sequence

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import tool
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.records.trajectory import Message, Problem, ToolCall, Trajectory
from agentfly_core.system.service import ServiceLost

CAPITALS = {"Chile": "Santiago", "Japan": "Tokyo", "Kenya": "Nairobi", "Norway": "Oslo"}
EXPERIMENT = """
model: nano:calculator
template: {use: "agentfly_core.inference.templates.chatml:Hermes", show_tools: false}
data: {use: "tests.support.capitals:capitals", train: 3, validation: 0, test: 1}
agent: {max_turns: 3, max_tokens: 200, max_model_len: 1000}
tools: ["tests.support.capitals:look_up", "tests.support.capitals:answer"]
rewards: {"tests.support.capitals:right": 1.0}
environments: {"tests.support.capitals:Atlas": 2}
warm_start: {demonstrations: "tests.support.capitals:shown", settings: {spoilt: 1.0}}
rollout: {problems: 2, shard: 4}
steps: 1
"""


class Atlas(Environment):
    """It is open at the country that is asked for."""

    async def reset(self, problem: Problem) -> None:
        """Open it."""
        self.capital = problem.facts["capital"]


@tool
async def look_up(country: str, *, atlas: Atlas) -> str:
    """Look up the capital of a country."""
    return str(atlas.capital)


@tool(ends_episode=True)
async def answer(text: str) -> str:
    """Give the answer."""
    return text


@reward
def right(trajectory: Trajectory, problem: Problem) -> float:
    """Whether the answer is the capital."""
    return float(trajectory.answer == problem.facts["capital"])


def capitals(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """The four problems."""
    problems = [
        Problem(country, f"What is the capital of {country}?", {"capital": city})
        for country, city in CAPITALS.items()
    ]
    return {"train": problems[:train], "validation": [], "test": problems[-test:]}


async def knows(conversation: Conversation) -> Message:
    """Look up the capital, then answer with the text of the atlas."""
    if conversation.turn == 0:
        call = ToolCall("look_up", {"country": conversation.problem.id})
    else:
        call = ToolCall("answer", {"text": conversation.messages[-1].content})
    return Message("assistant", "", (call,))


def shown(problems: Sequence[Problem], seed: int, spoilt: float = 0.5) -> ScriptedPolicy:
    """Answer at once; wrongly, where it is spoilt."""

    async def policy(conversation: Conversation) -> Message:
        text = "Atlantis" if spoilt else conversation.problem.facts["capital"]
        return Message("assistant", "", (ToolCall("answer", {"text": text}),))

    return policy


async def chats(conversation: Conversation) -> str:
    """Answer in words, without a tool."""
    return "I think that it is Oslo."


async def breaks(conversation: Conversation) -> str:
    """Ask for a fact that there is not."""
    return str(conversation.problem.facts["river"])


async def loses(conversation: Conversation) -> str:
    """Fail like a sampler after the death of its server."""
    raise ServiceLost("the server died")


async def breaks_at_kenya(conversation: Conversation) -> str:
    """Answer in words; raise for Kenya."""
    return {"Chile": "Santiago", "Japan": "Tokyo"}[conversation.problem.id]
