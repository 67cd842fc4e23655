"""Demonstrations of calculations with several steps."""

import random
from collections.abc import Sequence
from functools import partial

from agentfly_core import Conversation, Problem
from agentfly_core.datasets.players import Demonstrator, replying, slip
from agentfly_core.recipes.last_digit.dataset import STEP, digits


def step_by_step(
    problems: Sequence[Problem], seed: int, spoilt: float = 0.3, reasoning: bool = True
) -> Demonstrator:
    """Return a policy that reasons about each step of a calculation and then gives the last digit.

    `spoilt` is the share of episodes with a mistake: the policy guesses without reasoning,
    miscalculates a step or misreads the last result. Without `reasoning`, replies contain only the
    answer.
    """
    reply = partial(_reply, reasoning)
    return replying(seed, spoilt, reply, ("guess", "miscalculate", "misread"))


def thought(calculation: str, results: Sequence[str]) -> str:
    """Write the reasoning about a calculation: each operation, then its result's last digit.

    Calculations are computed from left to right. For 3+4*7+1, the reasoning is `+4 7 *7 9 +1 0`.
    `results` has the last digit after each operation: `["7", "9", "0"]`.
    """
    steps = ["".join(step) for step in STEP.findall(calculation)]
    return " ".join(f"{step} {result}" for step, result in zip(steps, results, strict=True))


def _reply(reasoning: bool, draw: random.Random, conversation: Conversation, mistake: str) -> str:
    calculation = conversation.problem.id
    results = digits(calculation)
    if mistake == "miscalculate":
        place = draw.randrange(len(results))
        wrong = slip(draw, results[place])
        steps = ["".join(step) for step in STEP.findall(calculation)]
        results = [*results[:place], wrong, *digits("".join([wrong, *steps[place + 1 :]]))]
    answer = slip(draw, results[-1]) if mistake in ("guess", "misread") else results[-1]
    if not reasoning or mistake == "guess":
        return answer
    return f"<think>\n{thought(calculation, results)}\n</think>\n\n{answer}"
