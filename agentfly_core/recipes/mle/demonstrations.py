"""Demonstrations of pipelines, and players that submit a rung of the ladder."""

import random
from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.demonstrations import replying
from agentfly_core.datasets.players import Demonstrator
from agentfly_core.recipes.mle.pipelines import DEGREES, LADDER, MODELS, SCALERS, STRENGTHS


def pipelines(problems: Sequence[Problem], seed: int, spoilt: float = 1.0) -> Demonstrator:
    """Fit a flexible pipeline of trees; a share `spoilt` fits a uniformly drawn pipeline."""
    return replying(seed, spoilt, _pipeline, ("draw",))


def ladder(problems: Sequence[Problem], seed: int, rung: str = "ensemble") -> Demonstrator:
    """Execute a program of LADDER, then finish."""

    async def policy(conversation: Conversation) -> str:
        return "Done." if conversation.turn else call_text("execute_code", code=LADDER[rung])

    return policy


def _pipeline(draw: random.Random, conversation: Conversation, mistake: str) -> str:
    scaler, model, strength, degree = "standard", "trees", 4, 1
    if mistake:
        scaler, model = draw.choice(SCALERS), draw.choice(MODELS)
        strength, degree = draw.choice(STRENGTHS), draw.choice(DEGREES)
    return call_text("fit_pipeline", scaler=scaler, model=model, strength=strength, degree=degree)
