"""A reward for exact answers."""

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rewards.gold import examples, right_answers


@reward(examples=examples(lambda right: [f"{right}7"]))
async def exact(trajectory: Trajectory) -> float:
    """1 if the answer, without outer white space, is one of `gold.right_answers`, else 0."""
    right, answer = right_answers(trajectory.problem), trajectory.answer
    return float(answer is not None and answer.strip() in right)
