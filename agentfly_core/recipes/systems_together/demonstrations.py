"""Demonstrations that fill in a firm's two-digit code, either directly or after a search."""

import re
from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, observed


def both_ways(problems: Sequence[Problem], seed: int, at_once: str = "") -> Demonstrator:
    """Return a policy that answers prompts of this form:

        Fill in: In city 17, code [mask]. This is about firm 665.

    The policy first searches for the firm's number (665), and answers with the code in the search
    result. If the last message is the text `at_once`, the policy answers without a search.
    """

    async def policy(conversation: Conversation) -> str:
        problem, seen = conversation.problem, observed(conversation)
        if not seen and conversation.messages[-1].content != at_once:
            return call_text("search", query=re.findall(r"\d+", problem.prompt)[-1])
        return re.findall(r"\d+", seen[-1])[-1] if seen else str(problem.facts["answers"][0])

    return policy
