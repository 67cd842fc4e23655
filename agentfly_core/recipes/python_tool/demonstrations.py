"""Demonstrations of programs that compute sums of powers."""

from collections.abc import Sequence
from functools import partial

from agentfly_core import Problem
from agentfly_core.datasets.demonstrations import (
    PROGRAM_MISTAKES,
    answering,
    calling,
    programming,
    replying,
    use_tool,
)
from agentfly_core.datasets.players import Demonstrator


def python(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy for the dataset `powers`. It runs a program and answers with the output.

    In a share `spoilt` of the episodes, it makes a mistake: it guesses, mistypes a bound, uses a
    wrong exponent or misreads the output.
    """
    reply = partial(use_tool, programming, partial(calling, "python", "code"), answering)
    return replying(seed, spoilt, reply, PROGRAM_MISTAKES)
