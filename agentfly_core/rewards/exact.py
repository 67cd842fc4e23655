"""Is the answer the right one?"""

from __future__ import annotations

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory


@reward
async def exact(trajectory: Trajectory) -> float:
    """1 when the episode's answer is `problem.facts["answer"]`, but for spaces around it; else, or
    without one, 0.
    """
    right = str(trajectory.problem.facts["answer"]).strip()
    return float(trajectory.answer is not None and trajectory.answer.strip() == right)
