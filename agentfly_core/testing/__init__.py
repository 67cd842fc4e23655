"""What tests of tools, rewards, agents and algorithms are made of, in a line each; needs no model and no pytest."""

from agentfly_core.testing.episodes import play, rollout_spec, score_of
from agentfly_core.testing.jobs import update_job
from agentfly_core.testing.trajectories import trajectory, turn

__all__ = ["play", "rollout_spec", "score_of", "trajectory", "turn", "update_job"]
