"""Demonstrations of both ways: answers without a tool, and counts."""

from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, observed
from agentfly_core.recipes.meco.agents import ANSWER


def both_ways(problems: Sequence[Problem], seed: int) -> Demonstrator:
    """Answer at once after the message ANSWER, else count the boxes.

    Answers about changing shelves cannot be learned, because they differ by episode.
    """

    async def policy(conversation: Conversation) -> str:
        facts, seen = conversation.problem.facts, observed(conversation)
        if seen or conversation.messages[-1].content == ANSWER:
            return seen[-1] if seen else str(facts["answer"])
        return call_text("count_boxes", shelf=facts["shelf"])

    return policy
