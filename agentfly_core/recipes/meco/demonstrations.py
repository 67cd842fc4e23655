"""Demonstrations of answers without a tool, and of answers after a call of `count_boxes`."""

from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, observed
from agentfly_core.recipes.meco.agents import ANSWER


def both_ways(problems: Sequence[Problem], seed: int) -> Demonstrator:
    """Return a policy that shows answers with and without the tool `count_boxes`.

    If the last message of the prompt is ANSWER ("Answer at once, ..."), the policy answers at once.
    Otherwise it calls `count_boxes`, and then answers.
    """

    async def policy(conversation: Conversation) -> str:
        facts, seen = conversation.problem.facts, observed(conversation)
        if seen or conversation.messages[-1].content == ANSWER:
            return seen[-1] if seen else str(facts["answer"])
        return call_text("count_boxes", shelf=facts["shelf"])

    return policy
