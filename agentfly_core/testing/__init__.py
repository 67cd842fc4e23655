"""Functions for tests of tools, rewards, agents and algorithms. No model or pytest is needed."""

from agentfly_core.rollout.pool import Limit
from agentfly_core.testing.datasets import problems_of
from agentfly_core.testing.episodes import play, rollout_spec, score_of
from agentfly_core.testing.learning import advantages_of, update_job
from agentfly_core.testing.letters import as_letters, loss_mask
from agentfly_core.testing.simulated import Simulated, Visible, counted, scores_of_policy
from agentfly_core.testing.templates import check_template
from agentfly_core.testing.trajectories import trajectory, turn

__all__ = [
    "Limit",
    "Simulated",
    "Visible",
    "advantages_of",
    "as_letters",
    "check_template",
    "counted",
    "loss_mask",
    "play",
    "problems_of",
    "rollout_spec",
    "score_of",
    "scores_of_policy",
    "trajectory",
    "turn",
    "update_job",
]
