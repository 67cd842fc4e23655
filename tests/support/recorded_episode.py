"""An episode as it is recorded, of two turns."""

from dataclasses import replace

from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Given,
    Message,
    Observation,
    Problem,
    Sampled,
    Score,
    ToolCall,
    Turn,
    Unscored,
)
from agentfly_core.testing import trajectories

FIRST = Turn(
    read=(Message("user", "What is 41+58?"),),
    given=Given((1, 2, 3)),
    reply=Message(
        "assistant",
        "",
        (ToolCall("calculator", {"expression": "41+58"}), BadCall("{", "unterminated")),
    ),
    sampled=(Sampled((4, 5), (-0.5, -0.25), 6, "stop"),),
)
SECOND = Turn(
    read=(Observation("calculator", "99"),),
    given=Given((6,)),
    reply=Message("assistant", "99"),
    sampled=(Sampled((7,), (-1.0,), 6, "stop"), Sampled((8, 9), (-0.125, -2.0), 7, "length")),
    call=1,
)


def trajectory(turns=(FIRST, SECOND), ending=Ending.NO_TOOL_CALLS, closing=()):
    """These turns, with two rewards that needed the environment, one of which was not given."""
    made = trajectories.trajectory(
        *turns,
        problem=Problem("add-41-58", "What is 41+58?", {"answer": "99"}),
        ending=ending,
        closing=closing,
        observed={"stock": Score(0.5, {"kept": 1.0}, (0.0, 0.5)), "slow": Unscored("TimeoutError")},
    )
    return replace(made, episode="e0", seed=7)
