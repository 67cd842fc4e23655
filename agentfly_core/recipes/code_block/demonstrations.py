"""Demonstrations that answer with Python code blocks."""

from collections.abc import Sequence
from functools import partial

from agentfly_core import Problem
from agentfly_core.datasets.demonstrations import PROGRAM_MISTAKES, programming, replying, use_tool
from agentfly_core.datasets.players import Demonstrator


def code_block(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy for the agent `agents.code_block`.

    It writes a block of Python code and then answers with the code's output. In a share `spoilt` of
    the episodes, it makes a mistake of PROGRAM_MISTAKES.
    """
    reply = partial(use_tool, programming, "```python\n{}\n```\n".format, str)
    return replying(seed, spoilt, reply, PROGRAM_MISTAKES)
