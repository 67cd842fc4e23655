"""Demonstrations of plans. A share of the plans has a deliberate mistake."""

import random
from collections.abc import Sequence

from agentfly_core import Conversation, Problem
from agentfly_core.datasets.players import Demonstrator, replying
from agentfly_core.recipes.tptu.plans import written

MISTAKES = ("swap", "leave out", "repeat", "take another tool")


def planner(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that replies with the right plan of the problem (the fact `plan`).

    In a share `spoilt` of the episodes, the plan has a mistake. If the mistake is to swap
    sub-tasks, but the plan has only one sub-task, this sub-task gets a wrong tool instead.
    """
    return replying(seed, spoilt, _plan, MISTAKES)


def _plan(draw: random.Random, conversation: Conversation, mistake: str) -> str:
    plan = list(conversation.problem.facts["plan"])
    place = draw.randrange(len(plan) - 1) if len(plan) > 1 else 0
    if mistake == "swap" and len(plan) > 1:
        other = (place + 1) % max(2, len(plan) - 1)
        plan[place], plan[other] = plan[other], plan[place]
    elif mistake == "leave out":
        del plan[place]
    elif mistake == "repeat":
        plan.insert(place, plan[place])
    elif mistake:
        plan[place] = {**plan[place], "tool": "python"}
    return written(plan)
