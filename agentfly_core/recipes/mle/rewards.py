"""The reward of a competition."""

from agentfly_core import Score, reward
from agentfly_core.recipes.mle.environment import MLE


@reward
async def human_rank(mle: MLE) -> Score:
    """The best HumanRank of an episode's submissions, computed on the private rows.

    The fact `formula` of the problem selects one of two formulas, "code" or "paper". The partial
    scores `code` and `paper` are the best ranks by each formula. The partial score `submissions` is
    the number of submissions.
    """
    return Score(mle.rank, parts={**mle.ranks, "submissions": float(mle.executions)})
