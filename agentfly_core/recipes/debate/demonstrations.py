"""Demonstrations for debaters with a calculator."""

import random
from collections.abc import Sequence
from functools import partial

from agentfly_core import Conversation, Message, Problem
from agentfly_core.datasets.demonstrations import SUM_MISTAKES, calculation, calling, use_tool
from agentfly_core.datasets.players import Demonstrator
from agentfly_core.recipes.debate.agents import majority

CALL = partial(calling, "calculator", "expression")


def debating(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy for the debaters of `agents.Debate`.

    In the first round a debater computes the sum with the calculator. With probability `spoilt`, it
    makes a mistake in this round: a guess, a mistyped sum, a wrong operation or a misread result.
    In later rounds it replies with the most frequent answer; if several answers are equally
    frequent, its own answer is preferred.
    """

    async def policy(conversation: Conversation) -> str:
        one = conversation
        # seeded again in each turn, to give all turns of a debater the same mistake
        draw = random.Random(f"{seed}/{one.problem.id}/{one.chain}/{one.speaker}")
        mistake = draw.choice(SUM_MISTAKES) if draw.random() < spoilt else ""
        messages = [message for message in one.messages if isinstance(message, Message)]
        if [message.role for message in messages].count("user") > 1:
            own, heard = (message.content for message in messages[-2:])
            return majority([own, *heard.split(", ")])
        return use_tool(calculation, CALL, str, draw, conversation, mistake)

    return policy
