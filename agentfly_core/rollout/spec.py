"""RolloutSpec: how the episodes of an experiment are played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.rollout.episode import Agent
from agentfly_core.rollout.frozen import Frozen
from agentfly_core.rollout.parts import kinds_needed
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.rules import EpisodeRules


@dataclass(frozen=True, kw_only=True)
class RolloutSpec(EpisodeRules):
    """How an experiment's episodes are played: by which rules, which agent, for how long (seconds).

    `rewards` are only those that need an environment, `limits` those of each kind of environment,
    `frozen` the speakers who are not trained, by role.
    """

    rewards: tuple[Reward, ...]
    agent: Agent
    deadline: float
    limits: Mapping[type[Environment], Limit]
    frozen: Mapping[str, Frozen] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> tuple[type[Environment], ...]:
        """The kinds of environment that an episode needs, in the fixed order of leasing."""
        return kinds_needed(self.tools, self.rewards)
