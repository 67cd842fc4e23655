"""The tool of the recipe, which knows what is on a shelf now."""

from agentfly_core import Problem, ToolError, tool


@tool
async def count_boxes(shelf: int, *, problem: Problem) -> str:
    """Count the boxes on a shelf.

    Args:
        shelf: the shelf's number
    """
    if shelf != problem.facts["shelf"]:
        raise ToolError(f"There is no way to shelf {shelf} now.")
    return str(problem.facts["answer"])
