"""How the episodes of an experiment are played, and which one is to be played."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from agentfly_core.authoring.chat_template import ChatTemplate, ToolSchema
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.config.experiment import Science
from agentfly_core.config.import_path import at, construct, load
from agentfly_core.records.trajectory import Ending, Message, Problem, Role
from agentfly_core.rollout.resources import Limit, in_order

if TYPE_CHECKING:
    from agentfly_core.rollout.episode import Episode

Agent = Callable[["Episode"], Awaitable[Ending]]
P = TypeVar("P")


class PromptTooLong(ValueError):
    """What problems open with leaves no room for a reply: `PromptTooLong({"add-41-58": 310}, limit=256)`, in tokens."""

    def __init__(self, tokens: Mapping[str, int], limit: int) -> None:
        worst = sorted(tokens, key=lambda problem: -tokens[problem])
        listed = ", ".join(f"{problem!r} has {tokens[problem]}" for problem in worst[:3])
        super().__init__(
            f"What the model reads first leaves no room for a reply in {len(tokens)} of the problems: "
            f"agent.max_model_len is {limit} tokens, {listed}. Raise it to more than {tokens[worst[0]]}, shorten "
            "agent.system or what the tools say of themselves, or leave these problems out of the data."
        )


@dataclass(frozen=True)
class Playbook:
    """The rules of play; lengths in tokens, the deadline in seconds.

    `rewards` are only those that need an environment, `limits` those of each kind of environment.

    Raises ValueError for two tools of one name and for an environment that is asked for and has no limit.
    """

    template: ChatTemplate
    tools: tuple[Tool, ...]
    rewards: tuple[Reward, ...]
    agent: Agent
    system: str
    max_turns: int
    max_tokens: int
    max_observation_tokens: int
    max_model_len: int
    deadline: float
    limits: Mapping[type[Environment], Limit]

    def __post_init__(self) -> None:
        _refuse_misfits(self.tools, self.rewards, self.limits)

    @classmethod
    def from_science(cls, science: Science, tokenizer: Any) -> Playbook:
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
    def schemas(self) -> tuple[ToolSchema, ...]:
        """What the model is told about its tools."""
        return tuple(tool.schema for tool in self.tools)

    def opening(self, problem: Problem) -> tuple[Message, ...]:
        """What a model that is asked a problem reads first."""
        system = (Message("system", self.system),) if self.system else ()
        return (*system, Message("user", problem.prompt))

    def require_room(self, problems: Iterable[Problem]) -> None:
        """Raise PromptTooLong where the opening of a problem leaves no token for a reply."""
        tokens = {p.id: len(self.template.open(self.opening(p), self.schemas)) for p in problems}
        if long := {problem: count for problem, count in tokens.items() if count >= self.max_model_len}:
            raise PromptTooLong(long, self.max_model_len)

    @cached_property
    def kinds(self) -> tuple[type[Environment], ...]:
        """The kinds of environment that an episode needs, in the fixed order in which they are leased."""
        return _kinds(self.tools, self.rewards)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One episode to be played: `Assignment(problem, chain=3, step=7, role="train", temperature=1.0, seed=5577006791)`.

    `step` is the split's name where a split is evaluated or demonstrated.
    """

    problem: Problem
    chain: int
    step: int | str
    role: Role
    temperature: float
    seed: int


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
