"""Demonstrations of sums in the format of ReAct."""

from collections.abc import Sequence
from functools import partial

from agentfly_core import Problem
from agentfly_core.datasets.demonstrations import SUM_MISTAKES, calculation, replying, use_tool
from agentfly_core.datasets.players import Demonstrator


def react(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that answers like `datasets.demonstrations:calculator`, in ReAct's format.

    The agent `agents.react` has this format. In a share `spoilt` of the episodes, the policy
    makes a mistake of SUM_MISTAKES.
    """
    ask = (
        "Thought: The calculator can work that out.\n"
        "Action: calculator\nAction Input: {}\nObservation:"
    )
    say = "Thought: I know the answer.\nFinal Answer: {}"
    reply = partial(use_tool, calculation, ask.format, say.format)
    return replying(seed, spoilt, reply, SUM_MISTAKES)
