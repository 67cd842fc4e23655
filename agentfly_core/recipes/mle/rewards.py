"""The reward of a machine-learning competition: the place on its leaderboard."""

from agentfly_core import Score, reward
from agentfly_core.recipes.mle.environment import MLE


@reward
async def human_rank(mle: MLE) -> Score:
    """The best HumanRank of an episode's submissions.

    HumanRank is the place of a submission on the leaderboard, as a number from 0 (worst) to 1
    (best), by its score on the private (held-out) rows. The fact `formula` of the problem selects
    one of two formulas, "code" or "paper". The partial score `code` is the best HumanRank by the
    formula "code", and `paper` is the best by the formula "paper". The partial score `submissions`
    is the number of submissions.
    """
    return Score(mle.rank, parts={**mle.ranks, "submissions": float(mle.executions)})
