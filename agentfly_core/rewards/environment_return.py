"""The sum of the step rewards that tools returned in an episode."""

import math

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Score, Trajectory


@reward
def environment_return(trajectory: Trajectory) -> Score:
    """The sum of all step rewards that tools returned. Without step rewards, the sum is 0.

    The field `per_turn` of the score has the sum of the step rewards of each turn.
    """
    per_turn = tuple(turn.reward or 0.0 for turn in trajectory.turns)
    return Score(math.fsum(per_turn), per_turn=per_turn)
