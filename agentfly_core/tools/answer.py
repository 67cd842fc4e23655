"""The tool for final answers."""

from agentfly_core.authoring.tool import tool


@tool(ends_episode=True)
async def answer(answer: str) -> str:
    """Give the final answer; nothing can be done afterwards.

    Args:
        answer: the answer, and nothing else
    """
    return answer.strip()
