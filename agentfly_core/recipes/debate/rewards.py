"""Rewards of a debate: the majority's for the episode, and each debater's own."""

from agentfly_core import Score, Team, reward
from agentfly_core.rewards.gold import right_answers


@reward
async def majority_right(team: Team) -> Score:
    """1 if the episode's answer is right, else 0; for a debater whether its last answer is."""
    right = right_answers(team.trajectories[0].problem)
    own = {
        f"debater/{number}": float((one.answer or "").strip() in right)
        for number, one in enumerate(team.of("debater"), 1)
    }
    return Score(float(any(one.answered in right for one in team.trajectories)), by_speaker=own)
