"""A reward that any policy earns a part of."""

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Trajectory


@reward
def evenness(trajectory: Trajectory) -> float:
    """The share of the sampled tokens with an even number."""
    tokens = [token for turn in trajectory.turns for span in turn.sampled for token in span.tokens]
    return sum(token % 2 == 0 for token in tokens) / max(1, len(tokens))
