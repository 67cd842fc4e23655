"""Is the answer the right one?"""

from __future__ import annotations

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rewards.gold import examples, right_answers


@reward(examples=examples(lambda right: [f"{right}7"]))
async def exact(trajectory: Trajectory) -> float:
    """1 when the episode's answer is a right one, but for spaces around it; else, or without an
    answer, 0. See `gold.right_answers` for the shapes of `problem.facts["answer"]`.
    """
    right, answer = right_answers(trajectory.problem), trajectory.answer
    return float(answer is not None and answer.strip() in right)
