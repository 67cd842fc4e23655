"""A reward for readable tool calls."""

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Observation, Score, ToolCall, Trajectory


@reward
async def tool_format(trajectory: Trajectory) -> Score:
    """The share of tool calls that could be parsed. It is 0 for an episode without tool calls.

    The partial score `answered` is the share of tool results that are not errors.
    """
    calls = [call for turn in trajectory.turns for call in turn.reply.calls]
    answers = tool_answers(trajectory)
    readable = sum(isinstance(call, ToolCall) for call in calls) / max(1, len(calls))
    answered = sum(not answer.error for answer in answers) / max(1, len(answers))
    return Score(readable, parts={"answered": answered})


def tool_answers(trajectory: Trajectory) -> list[Observation]:
    """Return the tool results of a trajectory: all observations that are not in the first prompt.

    Observations in the first prompt are not results of the policy's calls. They occur if the
    problem begins with a conversation, or if `reset` of an environment returns a text.
    """
    first = trajectory.turns[0].read if trajectory.turns else ()
    begins = [turn.read[: len(first)] == first for turn in trajectory.turns]
    read = [
        item
        for turn, is_opening in zip(trajectory.turns, begins, strict=True)
        for item in turn.read[len(first) if is_opening else 0 :]
    ]
    return [one for one in (*read, *trajectory.closing) if isinstance(one, Observation)]
