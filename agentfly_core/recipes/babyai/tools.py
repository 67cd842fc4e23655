"""The tool that acts in a BabyAI grid."""

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core import ToolError, tool
from agentfly_core.recipes.babyai.environment import BabyAI

Action = Literal["turn left", "turn right", "go forward", "pick up", "drop", "open or close"]
DONE = "The mission is carried out."
OVER = "It is over; nothing can be done any more."


@tool
async def act(
    action: Action, times: Annotated[int, Field(ge=1, le=6)] = 1, *, babyai: BabyAI
) -> str:
    """Do something, and see what is before you then.

    Args:
        action: turn, go forward to the next cell, or do something with what is right before you
        times: how often, for example 3 to go three cells forward
    """
    if babyai.over:
        raise ToolError(OVER)
    babyai.act(action, times)
    if babyai.over:
        return DONE if babyai.solved else OVER
    return babyai.view()
