"""A reward for the majority's answer in a debate, and for each debater's own last answer."""

from agentfly_core import Score, Team, reward
from agentfly_core.rewards.gold import right_answers


@reward
async def majority_right(team: Team) -> Score:
    """1 if the episode's answer (the majority's answer) is right, else 0.

    Each debater gets 1 or 0 for its own last answer.
    """
    right = right_answers(team.trajectories[0].problem)
    own = {
        f"debater/{number}": float((one.answer or "").strip() in right)
        for number, one in enumerate(team.of("debater"), 1)
    }
    return Score(float(any(one.answered in right for one in team.trajectories)), by_speaker=own)
