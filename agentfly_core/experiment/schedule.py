"""The order of an experiment's training problems."""

from __future__ import annotations

from agentfly_core.config.experiment import Science
from agentfly_core.records.problem_schedule import ProblemSchedule


def schedule_of(science: Science) -> ProblemSchedule:
    """Return the schedule of an experiment, which has one task without a name or several."""
    problems = science.quotas(science.rollout.problems)
    return ProblemSchedule(science.seed, science.rollout, problems, science.night)
