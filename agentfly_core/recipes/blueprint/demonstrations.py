"""Demonstrations of the agent `Architect`, computed only from the prompt."""

import json
import random
import re
from collections.abc import Sequence

from agentfly_core import Conversation, Problem
from agentfly_core.datasets.players import Demonstrator, mistake
from agentfly_core.recipes.blueprint.families import MATERIALS, parts_of
from agentfly_core.recipes.blueprint.memory import INTERPRETER

MISTAKES = ("omit", "move", "swap")


def architect(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy for the agent `Architect`.

    The policy interprets the prompt, such as "Build the tower: ...", and draws the blueprint.
    `spoilt` is the share of episodes in which one line of the blueprint is wrong: the line is
    missing, or has shifted coordinates or a different material.
    """

    async def policy(conversation: Conversation) -> str:
        order = conversation.problem.prompt
        if conversation.speaker == INTERPRETER:
            return interpreted(order)
        lines = "\n".join(parts_of(order).values()).splitlines()
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        return "\n".join(spoiled(lines, wrong, random.Random(conversation.seed)))

    return policy


def interpreted(order: str) -> str:
    """Return JSON such as `{"building": "pyramid", "parts": ["body", "tip"]}` for a prompt."""
    (building,) = re.findall(r"Build the (\w+):", order)
    return json.dumps({"building": building, "parts": [*parts_of(order)]})


def spoiled(lines: Sequence[str], wrong: str, draw: random.Random) -> Sequence[str]:
    """Return the lines of a blueprint with a mistake in one random line.

    `wrong` is the kind of mistake: "omit", "move" or "swap". If it is "", the lines are unchanged.
    """
    place = draw.randrange(len(lines))
    before, words, after = lines[:place], lines[place].split(), lines[place + 1 :]
    if wrong == "omit":
        return [*before, *after]
    if wrong == "move":
        words[2:] = [str(int(word) + draw.choice((0, 2, 3))) for word in words[2:]]
    if wrong == "swap":
        words[1] = draw.choice([block for block in MATERIALS if block != words[1]])
    return [*before, " ".join(words), *after]
