"""The reward of a competition."""

from agentfly_core import Score, reward
from agentfly_core.recipes.mle.environment import MLE


@reward
async def human_rank(mle: MLE) -> Score:
    """The best HumanRank on the private rows, by the competition's formula.

    Parts: `code` and `paper`, the two formulas, and `submissions`.
    """
    return Score(mle.rank, parts={**mle.ranks, "submissions": float(mle.executions)})
