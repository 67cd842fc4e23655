"""The tool that executes commands in a text adventure (environment `TextWorld`)."""

from agentfly_core import StepResult, ToolError, tool
from agentfly_core.recipes.textworld.environment import TextWorld

OVER = "The game is over; nothing can be done any more."


@tool
async def do(command: str, *, textworld: TextWorld) -> StepResult:
    """Do something in the game, and read what happens.

    Args:
        command: for example go north, take old key, examine old key, look, inventory
    """
    if textworld.over:
        raise ToolError(OVER)
    return StepResult(textworld.do(command), reward=float(textworld.won))
