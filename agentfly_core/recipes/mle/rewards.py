"""The reward of a competition."""

from agentfly_core import Score, reward
from agentfly_core.recipes.mle.environment import MLE


@reward
async def human_rank(mle: MLE) -> Score:
    """The best HumanRank of an episode's submissions, computed on the private rows.

    The fact `formula` of the problem is "code" or "paper". The partial scores are the ranks by both
    formulas (`code` and `paper`), and `submissions`, the number of submissions.
    """
    return Score(mle.rank, parts={**mle.ranks, "submissions": float(mle.executions)})
