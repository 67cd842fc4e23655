"""A reward for exact answers."""

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rewards.gold import examples, right_answers


@reward(examples=examples(lambda right: [f"{right}7"]))
async def exact(trajectory: Trajectory) -> float:
    """1 if the answer equals one of the right answers, else 0. Outer white space is ignored.

    `gold.right_answers` reads the right answers from the fact `answer`.
    """
    right, answer = right_answers(trajectory.problem), trajectory.answer
    return float(answer is not None and answer.strip() in right)
