"""Demonstrations of both ways: a code at once, and a search."""

import random
import re
from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, mistake, observed
from agentfly_core.recipes.systems_together.corpus import CODES


def both_ways(
    problems: Sequence[Problem], seed: int, at_once: str = "", spoilt: float = 0.0
) -> Demonstrator:
    """Fill the mask after the message `at_once`, else search the firm and copy the code.

    A share `spoilt` of the codes is wrong.
    """

    async def policy(conversation: Conversation) -> str:
        problem, seen = conversation.problem, observed(conversation)
        if seen:
            code = re.findall(r"\d+", seen[-1])[-1]
        elif conversation.messages[-1].content == at_once:
            code = str(problem.facts["answers"][0])
        else:
            return call_text("search", query=re.findall(r"\d+", problem.prompt)[-1])
        if mistake(conversation, seed, spoilt, ["code"]):
            draw = random.Random(f"{seed} {problem.id} {conversation.chain}")
            code = draw.choice([one for one in CODES if one != code])
        return code

    return policy
