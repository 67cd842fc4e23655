"""Tools that run the model's Python code in a sandbox.

Only the tool `python_session` keeps variables and files between calls.
"""

from agentfly_core.authoring.tool import tool
from agentfly_core.environments.interpreter import LIMITS, Interpreter
from agentfly_core.sandbox.model_feedback import feedback
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import run

SHOWN = 8192
SILENT = "The program printed nothing."
LOST = "The interpreter ended: what was defined in it is gone, and the next call starts a new one."


@tool(timeout=120.0, max_chars=SHOWN, retries=1, ready=chosen)
async def python(code: str) -> str:
    """Run a Python program and read what it prints.

    Args:
        code: the whole program; print() what you want to know, nothing is kept between calls
    """
    return feedback(await run(code, limits=LIMITS), LIMITS) or SILENT


@tool(
    name="python",
    description="Run Python and read what it prints; what earlier calls defined, imported and "
    "wrote to files is still there.",
    timeout=120.0,
    max_chars=SHOWN,
    ready=chosen,
)
async def python_session(code: str, *, interpreter: Interpreter) -> str:
    """Run Python after all that earlier calls ran.

    Args:
        code: one or more lines; print() what you want to know, nothing else is shown
    """
    result = await interpreter.run(code)
    return feedback(result, LIMITS, "" if interpreter.alive else LOST) or SILENT
