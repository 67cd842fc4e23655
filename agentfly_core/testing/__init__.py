"""Builders for tests of tools, rewards, agents and algorithms; they need no model and no pytest."""

from agentfly_core.rollout.pool import Limit
from agentfly_core.testing.datasets import problems_of
from agentfly_core.testing.episodes import play, rollout_spec, score_of
from agentfly_core.testing.learning import advantages_of, update_job
from agentfly_core.testing.letters import as_letters, loss_mask
from agentfly_core.testing.templates import check_template
from agentfly_core.testing.trajectories import trajectory, turn

__all__ = [
    "Limit",
    "advantages_of",
    "as_letters",
    "check_template",
    "loss_mask",
    "play",
    "problems_of",
    "rollout_spec",
    "score_of",
    "trajectory",
    "turn",
    "update_job",
]
