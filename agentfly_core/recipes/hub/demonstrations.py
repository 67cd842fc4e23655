"""Demonstrations of a team that combines its members' digits. Some contain wrong digits."""

import json
import random
import re
from collections.abc import Sequence

from agentfly_core import Conversation, Problem
from agentfly_core.datasets.players import Demonstrator, another, mistake
from agentfly_core.recipes.hub.team import MEMBERS


def team(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy for all members of a team that must combine its members' digits.

    A member replies with the digits that other members have reported to it, and with its own digit.
    The policy takes the right digits only from the texts of the conversation, and does not read
    `Problem.facts`. `spoilt` is the share of episodes in which one member replies with wrong
    digits.
    """

    async def policy(conversation: Conversation) -> str:
        digits = digits_of([message.content for message in conversation.messages])
        if mistake(conversation, seed, spoilt, MEMBERS) == conversation.speaker:
            draw = random.Random(f"{seed} {conversation.problem.id} {conversation.chain}")
            digits = another(draw, digits, ())
        return json.dumps({"say": digits})

    return policy


def digits_of(texts: Sequence[str]) -> str:
    """Return the digits that a member of the team must report in its next reply.

    These are the digits of the member's last reply. Before its first reply, they are the digits
    that the member has read, followed by its own digit. One member, the chair, has no digit.
    `texts` are the texts of the member's conversation, which begins with its system message.
    """
    text = "\n".join(texts[1:])
    if before := re.findall(r'"say": "(\d+)"', text):
        return str(before[-1])
    own = re.findall(r"Your digit is (\d)", texts[0])
    return "".join(re.findall(r"^\w+: (\d+)$", text, re.M) + own)
