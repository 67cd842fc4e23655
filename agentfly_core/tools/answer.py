"""The tool for final answers."""

from agentfly_core.authoring.tool import tool
from agentfly_core.system.formats.strict_json import MAX_BYTES


@tool(ends_episode=True, max_chars=MAX_BYTES)
async def answer(answer: str) -> str:
    """Give the final answer; nothing can be done afterwards.

    Args:
        answer: the answer, and nothing else
    """
    return answer.strip()
