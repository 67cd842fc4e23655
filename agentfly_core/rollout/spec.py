"""How the episodes of an experiment are played, and which one is to be played."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.config.experiment import Science
from agentfly_core.config.import_path import at, construct, load
from agentfly_core.rollout.episode import Agent, EpisodeRules
from agentfly_core.rollout.resources import Limit, in_order

P = TypeVar("P")


@dataclass(frozen=True, kw_only=True)
class RolloutSpec(EpisodeRules):
    """How an experiment's episodes are played: by which rules, which agent, for how long (seconds).

    `rewards` are only those that need an environment, `limits` those of each kind of environment.

    Raises ValueError for two tools of one name and for an environment that is asked for and has no limit.
    """

    rewards: tuple[Reward, ...]
    agent: Agent
    deadline: float
    limits: Mapping[type[Environment], Limit]

    def __post_init__(self) -> None:
        _refuse_misfits(self.tools, self.rewards, self.limits)

    @classmethod
    def from_science(cls, science: Science, tokenizer: Any) -> RolloutSpec:
        """The playbook of an experiment; raises ValueError for a part that is not what it is named as."""
        agent, template = science.agent, science.template
        rewards = [named(path, Reward) for path in science.rewards]
        return cls(
            template=construct(load(template.use), template.settings, {"tokenizer": tokenizer}),
            tools=tuple(named(path, Tool) for path in science.tools),
            rewards=tuple(reward for reward in rewards if reward.needs),
            agent=_agent(agent.use),
            system=agent.system,
            max_turns=agent.max_turns,
            max_tokens=agent.max_tokens,
            max_observation_tokens=agent.max_observation_tokens,
            max_model_len=agent.max_model_len,
            deadline=agent.deadline,
            limits=limits_of(science),
        )

    @cached_property
    def kinds(self) -> tuple[type[Environment], ...]:
        """The kinds of environment that an episode needs, in the fixed order in which they are leased."""
        return _kinds(self.tools, self.rewards)


def check(science: Science) -> None:
    """Raise ValueError for an agent, tools, rewards and environments of which no playbook could be made."""
    with at("agent.use"):
        _agent(science.agent.use)
    with at("tools"):
        tools = [named(path, Tool) for path in science.tools]
    with at("rewards"):
        rewards = [named(path, Reward) for path in science.rewards]
    _refuse_misfits(tools, rewards, limits_of(science))
    if silent := [tool.name for tool in tools if not tool.schema.description]:
        raise ValueError(
            f"The tool {silent[0]!r} says nothing of itself to the model: give its function a docstring, or say "
            "`@tool(description=...)`."
        )
    parts: tuple[Tool | Reward, ...] = (*tools, *rewards)
    for part in parts:
        part.ready()


def named(path: str, kind: type[P]) -> P:
    """The tool or reward that an import path names; raises ValueError for anything else."""
    found = load(path)
    if not isinstance(found, kind):
        name = kind.__name__
        raise ValueError(f"{path} is a {type(found).__name__}, expected a {name}: decorate it with @{name.lower()}.")
    return found


def limits_of(science: Science) -> dict[type[Environment], Limit]:
    """How many environments of each kind an experiment allows; raises ValueError for what is no environment."""
    with at("environments"):
        found = {path: load(path) for path in science.environments}
    for path, kind in found.items():
        if not (isinstance(kind, type) and issubclass(kind, Environment)):
            raise ValueError(f"{path} is no environment, expected a subclass of agentfly_core.authoring.environment:Environment.")
    return {found[path]: Limit(p.limit, p.max_uses, p.lifetime) for path, p in science.environments.items()}


def kinds_of(science: Science) -> tuple[type[Environment], ...]:
    """The kinds of environment that every episode of an experiment needs."""
    return _kinds([named(path, Tool) for path in science.tools], [named(path, Reward) for path in science.rewards])


def _agent(path: str) -> Agent:
    agent: Agent = load(path)
    if isinstance(agent, type) or not any(map(inspect.iscoroutinefunction, (agent, agent.__call__))):  # type: ignore[operator]
        raise ValueError(f"{path} is no agent, expected an `async def` of one Episode that returns its Ending.")
    return agent


def _kinds(tools: Sequence[Tool], rewards: Sequence[Reward]) -> tuple[type[Environment], ...]:
    parts: tuple[Tool | Reward, ...] = (*tools, *rewards)
    needed = {kind for part in parts for kind in part.needs.values()}
    return in_order(kind for kind in needed if issubclass(kind, Environment))


def _refuse_misfits(
    tools: Sequence[Tool], rewards: Sequence[Reward], limits: Mapping[type[Environment], Limit]
) -> None:
    for what, names in (
        ("tool", [tool.schema.name for tool in tools]),
        ("reward", [reward.name for reward in rewards]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(f"{count} {what}s are called {name!r}; give each another name, `@{what}(name=...)`.")
    for kind in _kinds(tools, rewards):
        if kind not in limits:
            path = f"{kind.__module__}:{kind.__qualname__}"
            raise ValueError(
                f"A tool or reward asks for a {kind.__name__} and there is no limit for it; say how many "
                f"there may be, for example `environments: {{{path}: 8}}`."
            )
