"""What was said in an episode, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from agentfly_core.records.trajectory import Message, Observation, ToolCall, Trajectory, Turn


def read_text(item: Message | Observation) -> str:
    """What the model read: `calculator: 99` of a tool's answer."""
    return f"{item.tool}: {item.content}" if isinstance(item, Observation) else item.content


def said_text(turn: Turn) -> str:
    """What the model said, its calls written out: `calculator({"expression": "41+58"})`."""
    calls = [
        f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})"
        if isinstance(call, ToolCall)
        else f"{call.text} (unreadable: {call.fault})"
        for call in turn.reply.calls
    ]
    return "\n".join(part for part in (turn.reply.content, *calls) if part)


def texts(trajectory: Trajectory) -> Iterator[str]:
    """All that was read and said in an episode, in order, the problem first."""
    yield trajectory.problem.prompt
    for turn in trajectory.turns:
        yield from map(read_text, turn.read)
        yield said_text(turn)
    yield from map(read_text, trajectory.closing)
