"""Episodes in letters, and their tokens as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentfly_core.authoring.tool import Tool
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.testing import episodes
from agentfly_core.testing.letters import decode


async def play(replies: Sequence[str], *tools: Tool, **settings: Any) -> Trajectory:
    """One episode of ADD whose replies are given, with these settings of its rules."""
    return await episodes.play(replies, spec=episodes.rollout_spec(*tools, **settings))


def tokens(trajectory: Trajectory) -> str:
    """All its tokens as letters."""
    turns = trajectory.turns
    return "".join(decode(turn.given.tokens) + "".join(decode(s.tokens) for s in turn.sampled) for turn in turns)


def mask(trajectory: Trajectory) -> str:
    """One letter a token: `.` read, `x` sampled."""
    turns = trajectory.turns
    return "".join("." * len(turn.given.tokens) + "x" * sum(len(s.tokens) for s in turn.sampled) for turn in turns)
