"""Demonstrations in which a policy turns the six handles of a vault. Some turns are random."""

import random
from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, observed
from agentfly_core.recipes.arpo.vault import HANDLES, WAYS


def handles(problems: Sequence[Problem], seed: int, spoilt: float = 1.0) -> Demonstrator:
    """Return a policy that opens vaults with the tool `turn`.

    A vault has six handles, which are turned one after the other. After one of these turns, a lamp
    lights. Its colour determines the correct direction of the next turn. In a share `spoilt` of the
    episodes, the policy turns in a random direction after the lamp. In the other episodes, it turns
    in the correct direction. All other turns are to the left.
    """

    async def policy(conversation: Conversation) -> str:
        seen = observed(conversation)
        if len(seen) == HANDLES:
            return "Done."
        way = "left"
        if seen and seen[-1].startswith("lamp"):
            draw = random.Random(f"{seed} {conversation.problem.id} {conversation.chain}")
            guessed = draw.random() < spoilt
            way = draw.choice(WAYS) if guessed else str(conversation.problem.facts["direction"])
        return call_text("turn", way=way)

    return policy
