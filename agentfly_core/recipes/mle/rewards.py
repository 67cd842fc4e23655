"""The reward of a competition."""

from agentfly_core import Score, reward
from agentfly_core.recipes.mle.environment import MLE


@reward
async def human_rank(mle: MLE) -> Score:
    """The best HumanRank of an episode on the private rows, by the formula of the problem.

    The parts are `code` and `paper`, the rank by each formula, and `submissions`, their number.
    """
    return Score(mle.rank, parts={**mle.ranks, "submissions": float(mle.executions)})
