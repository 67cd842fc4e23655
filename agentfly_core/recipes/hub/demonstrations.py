"""Demonstrations of the team; in a share of them a member replies with wrong digits."""

import json
import random
import re
from collections.abc import Sequence

from agentfly_core import Conversation, Problem
from agentfly_core.datasets.players import Demonstrator, another, mistake
from agentfly_core.recipes.hub.team import MEMBERS


def team(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Demonstrate: reply with the digits in earlier messages and the member's own digit.

    The problem's facts are not read. In a share `spoilt` of the episodes, one member replies with
    wrong digits.
    """

    async def policy(conversation: Conversation) -> str:
        digits = digits_of([message.content for message in conversation.messages])
        if mistake(conversation, seed, spoilt, MEMBERS) == conversation.speaker:
            draw = random.Random(f"{seed} {conversation.problem.id} {conversation.chain}")
            digits = another(draw, digits, ())
        return json.dumps({"say": digits})

    return policy


def digits_of(texts: Sequence[str]) -> str:
    """Return the digits of a member's next reply. `texts[0]` is its system message."""
    text = "\n".join(texts[1:])
    if before := re.findall(r'"say": "(\d+)"', text):
        return str(before[-1])
    own = re.findall(r"Your digit is (\d)", texts[0])
    return "".join(re.findall(r"^\w+: (\d+)$", text, re.M) + own)
