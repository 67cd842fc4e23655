"""Demonstrations of answers without a tool, and of counts with the tool."""

from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, observed
from agentfly_core.recipes.meco.agents import ANSWER


def both_ways(problems: Sequence[Problem], seed: int) -> Demonstrator:
    """Demonstrate: answer at once after the message ANSWER, else count the boxes with the tool.

    The answers about changing shelves cannot be learned, because they differ between problems.
    """

    async def policy(conversation: Conversation) -> str:
        facts, seen = conversation.problem.facts, observed(conversation)
        if seen or conversation.messages[-1].content == ANSWER:
            return seen[-1] if seen else str(facts["answer"])
        return call_text("count_boxes", shelf=facts["shelf"])

    return policy
