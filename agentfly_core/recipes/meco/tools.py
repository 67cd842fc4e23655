"""The tool that counts the boxes on a shelf."""

from agentfly_core import Problem, ToolError, tool


@tool
async def count_boxes(shelf: int, *, problem: Problem) -> str:
    """Count the boxes on a shelf.

    Args:
        shelf: the shelf's number
    """
    if shelf != problem.facts["shelf"]:
        raise ToolError(f"Shelf {shelf} is closed; ask for shelf {problem.facts['shelf']}.")
    return str(problem.facts["answer"])
