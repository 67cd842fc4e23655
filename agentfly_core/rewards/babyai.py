"""Was the mission carried out?"""

from __future__ import annotations

from agentfly_core.authoring.reward import reward
from agentfly_core.environments.babyai import BabyAI


@reward
async def mission(babyai: BabyAI) -> float:
    """1 when it was, however long it took, else 0."""
    return float(babyai.solved)
