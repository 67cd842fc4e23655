"""Demonstrations for machine-learning competitions: fitted pipelines, and complete programs."""

import random
from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, replying
from agentfly_core.recipes.mle.pipelines import DEGREES, LADDER, MODELS, SCALERS, STRENGTHS


def pipelines(problems: Sequence[Problem], seed: int, spoilt: float = 1.0) -> Demonstrator:
    """Return a policy that fits a pipeline with the tool `fit_pipeline`.

    `spoilt` is the share of episodes in which the arguments of the tool are random, by default all.
    In the other episodes, the policy always fits the same pipeline with the model "trees".
    """
    return replying(seed, spoilt, _pipeline, ("draw",))


def ladder(problems: Sequence[Problem], seed: int, rung: str = "ensemble") -> Demonstrator:
    """Return a policy that executes a complete program, and then finishes.

    The policy uses the tool `execute_code`. `rung` is the name of the program in LADDER, such as
    "ensemble".
    """

    async def policy(conversation: Conversation) -> str:
        return "Done." if conversation.turn else call_text("execute_code", code=LADDER[rung])

    return policy


def _pipeline(draw: random.Random, conversation: Conversation, mistake: str) -> str:
    scaler, model, strength, degree = "standard", "trees", 4, 1
    if mistake:
        scaler, model = draw.choice(SCALERS), draw.choice(MODELS)
        strength, degree = draw.choice(STRENGTHS), draw.choice(DEGREES)
    return call_text("fit_pipeline", scaler=scaler, model=model, strength=strength, degree=degree)
