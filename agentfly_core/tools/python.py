"""Python that a model writes, run in a sandbox of its own for each call: nothing is kept between calls."""

from __future__ import annotations

from agentfly_core.environment import ServiceFailure
from agentfly_core.sandbox.forkserver import Unavailable
from agentfly_core.sandbox.limits import Limits
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import run
from agentfly_core.sandbox.told import told
from agentfly_core.tool import tool

SHOWN = 8192
LIMITS = Limits()


@tool(timeout=120.0, max_chars=SHOWN, retries=1, ready=chosen)
async def python(code: str) -> str:
    """Run a Python program and read what it prints.

    Args:
        code: the whole program; print() what you want to know, nothing is kept between calls
    """
    try:
        result = await run(code, limits=LIMITS)
    except Unavailable as error:
        raise ServiceFailure(str(error)) from error
    return told(result, LIMITS) or "The program printed nothing."
