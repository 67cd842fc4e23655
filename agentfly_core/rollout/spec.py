"""RolloutSpec: how the episodes of an experiment are played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.rollout.episode import Agent, EpisodeRules
from agentfly_core.rollout.resources import Limit, in_order


@dataclass(frozen=True, kw_only=True)
class RolloutSpec(EpisodeRules):
    """How an experiment's episodes are played: by which rules, which agent, for how long (seconds).

    `rewards` are only those that need an environment, `limits` those of each kind of environment.

    Raises ValueError for two tools of one name and for an environment that is asked for and has no
    limit.
    """

    rewards: tuple[Reward, ...]
    agent: Agent
    deadline: float
    limits: Mapping[type[Environment], Limit]

    def __post_init__(self) -> None:
        refuse_misfits(self.tools, self.rewards, self.limits)

    @cached_property
    def kinds(self) -> tuple[type[Environment], ...]:
        """The kinds of environment that an episode needs, in the fixed order of leasing."""
        return kinds_needed(self.tools, self.rewards)


def kinds_needed(tools: Sequence[Tool], rewards: Sequence[Reward]) -> tuple[type[Environment], ...]:
    """The kinds of environment that tools and rewards ask for, in the order of leasing."""
    parts: tuple[Tool | Reward, ...] = (*tools, *rewards)
    needed = {kind for part in parts for kind in part.needs.values()}
    return in_order(kind for kind in needed if issubclass(kind, Environment))


def refuse_misfits(
    tools: Sequence[Tool], rewards: Sequence[Reward], limits: Mapping[type[Environment], Limit]
) -> None:
    """Raise ValueError for two tools or rewards of one name, or an environment without a limit."""
    for what, names in (
        ("tool", [tool.schema.name for tool in tools]),
        ("reward", [reward.name for reward in rewards]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(
                    f"{count} {what}s are called {name!r}; give each another name, "
                    f"`@{what}(name=...)`."
                )
    for kind in kinds_needed(tools, rewards):
        if kind not in limits:
            path = f"{kind.__module__}:{kind.__qualname__}"
            raise ValueError(
                f"A tool or reward asks for a {kind.__name__} and there is no limit for it; say "
                f"how many there may be, for example `environments: {{{path}: 8}}`."
            )
