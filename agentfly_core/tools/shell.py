"""Shell commands on the files of a Workspace, each in a new sandbox."""

from agentfly_core.authoring.tool import tool
from agentfly_core.environments.workspace import LIMITS, Workspace
from agentfly_core.sandbox.model_feedback import feedback
from agentfly_core.sandbox.preflight import chosen

SHOWN = 8192


@tool(timeout=120.0, max_chars=SHOWN, retries=1, ready=chosen)
async def shell(command: str, *, workspace: Workspace) -> str:
    """Run a shell command in the folder of the files and read what it prints.

    Args:
        command: for example: python3 main.py | head; no network, and nothing but the files is kept
    """
    return feedback(await workspace.run(command), LIMITS) or "The command printed nothing."
