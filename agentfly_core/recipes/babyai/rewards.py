"""The reward for a BabyAI mission."""

from agentfly_core import reward
from agentfly_core.recipes.babyai.environment import BabyAI


@reward
async def mission(babyai: BabyAI) -> float:
    """1 if the mission is solved, else 0."""
    return float(babyai.solved)
