"""Demonstrations that open vaults. In some, the turn after the lamp has a random direction."""

import random
from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, observed
from agentfly_core.recipes.arpo.vault import HANDLES, WAYS


def handles(problems: Sequence[Problem], seed: int, spoilt: float = 1.0) -> Demonstrator:
    """Return a policy that opens vaults with the tool `turn`.

    A lamp lights after the turn of one of the six handles. The policy turns the next handle in the
    direction that belongs to the lamp's colour. It turns all other handles left. In a share
    `spoilt` of the episodes, it turns the handle after the lamp in a random direction instead.
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
