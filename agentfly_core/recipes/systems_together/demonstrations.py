"""Demonstrations of both ways: a code at once, and a search."""

import random
import re
from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, another, mistake, observed


def both_ways(
    problems: Sequence[Problem], seed: int, at_once: str = "", spoilt: float = 0.0
) -> Demonstrator:
    """Fill the mask after the message `at_once`, else search the firm and copy the code.

    A share `spoilt` of the codes is wrong.
    """

    async def policy(conversation: Conversation) -> str:
        problem, seen = conversation.problem, observed(conversation)
        if not seen and conversation.messages[-1].content != at_once:
            return call_text("search", query=re.findall(r"\d+", problem.prompt)[-1])
        code = re.findall(r"\d+", seen[-1])[-1] if seen else str(problem.facts["answers"][0])
        if mistake(conversation, seed, spoilt, ["code"]):
            draw = random.Random(f"{seed} {problem.id} {conversation.chain}")
            code = another(draw, code, ())
        return code

    return policy
