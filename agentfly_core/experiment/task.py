"""A task of an experiment: its settings, its agent, its tools, its rewards and environments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from agentfly_core.authoring import injection
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.config.experiment import Settings
from agentfly_core.config.import_path import at, check_settings, construct, load, parameters_of
from agentfly_core.config.parts import AgentPart, PoolSettings, RewardPart, ToolPart
from agentfly_core.config.site import Site
from agentfly_core.config.tasks import GOAL, SINGLE
from agentfly_core.records.trajectory import Scored, Trajectory
from agentfly_core.rollout.episode import Agent
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import refuse_misfits

P = TypeVar("P")
Remember = Callable[[Path, Sequence[Trajectory], Sequence[Scored], int, Path], None]
"""The type of the function that `agent.remembers` names.

`remember(before, trajectories, scores, seed, folder)` fills the empty folder `folder` with the new
memory (files that agents read). `before` is the folder of the previous memory. The trajectories and
scores are from the training episodes of a step.
"""


@dataclass(frozen=True)
class Task:
    """A task with its imported code: `Task(settings, agent, (calculator,), {exact: 1.0}, "exact",
    {})`.

    - `settings`: the settings of an experiment with only this task
    - `rewards`: the rewards and their weights
    - `goal`: the name of the reward that decides success. Empty for a task without rewards.
    - `limits`: for each environment class, the settings, the largest number of environments, and
      the age in seconds and the number of leases after which an environment is replaced
    """

    settings: Settings
    agent: Agent
    tools: tuple[Tool, ...]
    rewards: Mapping[Reward, float]
    goal: str
    limits: Mapping[type[Environment], Limit]

    @property
    def parts(self) -> tuple[Tool | Reward, ...]:
        """The tools, followed by the rewards."""
        return (*self.tools, *self.rewards)


def import_tasks(settings: Settings) -> dict[str, Task]:
    """Import the tasks of an experiment, and return them by name.

    Without a mixture of tasks, the result is `{"single": Task(...)}`. Raises ValueError if a
    setting is wrong. The message contains the key of the setting.
    """
    tasks = {}
    for name, own in settings.each.items():
        with nullcontext() if name == SINGLE else at(f"tasks.{name}"):
            agent, tools = agent_of(own.agent), tuple(chain.from_iterable(map(tools_of, own.tools)))
            rewards = {key: reward_of(key, part) for key, part in own.rewards.items()}
            limits = limits_of(own.environments)
            refuse_misfits(tools, list(rewards.values()), limits)
            weights = {rewards[key]: part.weight for key, part in own.rewards.items()}
            goal = rewards[own.goal].name if rewards else ""
            tasks[name] = Task(own, agent, tools, weights, goal, limits)
    for part in settings.own_settings():
        part.completed()
    if settings.agent.remembers:
        remember_of(settings.agent.remembers)
    return tasks


def together(settings: Settings, tasks: Mapping[str, Task]) -> Task:
    """Join all tasks to one task.

    Raises ValueError if two tasks have different settings for the same reward or environment.
    """
    if SINGLE in tasks:
        return tasks[SINGLE]
    agent = agent_of(settings.agent)
    tools = tuple(tool for task in tasks.values() for tool in task.tools)
    return Task(settings, agent, tools, _shared_rewards(tasks), GOAL, _shared_limits(tasks))


def _shared_limits(tasks: Mapping[str, Task]) -> dict[type[Environment], Limit]:
    limits: dict[type[Environment], tuple[str, Limit]] = {}
    for name, task in tasks.items():
        for kind, limit in task.limits.items():
            first, same = limits.setdefault(kind, (name, limit))
            if limit != same:
                raise ValueError(
                    f"tasks.{name}.environments: the limit or settings of {kind.__name__} differ "
                    f"from those in the task {first}, but tasks share environments. Set "
                    f"{kind.__name__} once, outside `tasks`."
                )
    return {kind: limit for kind, (_, limit) in limits.items()}


def _shared_rewards(tasks: Mapping[str, Task]) -> dict[Reward, float]:
    """Merge the rewards of all tasks.

    Raises ValueError if two tasks have different settings for the same reward.
    """
    by_name: dict[str, tuple[str, RewardPart, Reward]] = {}
    for name, task in tasks.items():
        for reward, part in zip(task.rewards, task.settings.rewards.values(), strict=True):
            first, same, _ = by_name.setdefault(reward.name, (name, part, reward))
            if part != same:
                raise ValueError(
                    f"tasks.{name}.rewards: the weight or settings of {reward.name} differ from "
                    f"those in the task {first}. Give the reward another name in one of the tasks: "
                    "`{my_name: {use: PATH, weight: ...}}`, where PATH is the reward's import "
                    "path."
                )
    if GOAL in by_name:
        raise ValueError(
            f"tasks.{by_name[GOAL][0]}.rewards: {GOAL} is a reserved name in experiments with "
            "`tasks`; rename the reward."
        )
    return {reward: part.weight for _, part, reward in by_name.values()}


def goal_of(goal: str, rewards: Mapping[str, RewardPart]) -> str:
    """Return the key in `Scored.rewards` of the reward that decides success.

    `goal` is the key of this reward in the setting `rewards`. In a mixture of tasks, each task has
    its own goal, so the common key GOAL is returned. Raises ValueError for an experiment without
    rewards.
    """
    require_rewards(goal)
    return GOAL if goal == GOAL and goal not in rewards else reward_of(goal, rewards[goal]).name


def require_rewards(goal: str) -> None:
    """Raise ValueError if the goal is "", which means that there are no rewards."""
    if not goal:
        raise ValueError(
            "The experiment has no rewards, so success cannot be measured. Evaluate its policy by "
            "an experiment with rewards: `agentfly evaluate EXPERIMENT --policy run:NAME`."
        )


def agent_of(part: AgentPart) -> Agent:
    """Import the agent that `part.use` names.

    `part.use` names an async function, or a class with an async `__call__`. One object of the class
    plays all episodes. `part.use` may also name a function with the parameters `problem` and
    `base_url`, which is wrapped in a FunctionProgram, an agent that calls the function. Raises
    ValueError if `part.use` does not name an agent.
    """
    with at("agent.use"):
        named = load(part.use)
        if inspect.isfunction(named) and [*inspect.signature(named).parameters][1:] == ["base_url"]:
            # imported here, because it loads aiohttp
            from agentfly_core.agents.program import FunctionProgram

            return FunctionProgram(named)
        if not any(map(inspect.iscoroutinefunction, (named, named.__call__))):
            raise ValueError(
                f"{part.use} is no agent, expected an `async def` function that takes an Episode "
                "and returns its Ending, a class with such a __call__, or a function with the "
                "parameters problem and base_url."
            )
        agent: Agent = named
        if isinstance(named, type):
            agent = construct(named, part.model_extra or {})
    return agent


def remember_of(path: str) -> Remember:
    """Import the function that `agent.remembers` names.

    Raises ValueError if the function is async, or if it does not have five arguments (see
    `Remember`).
    """
    with at("agent.remembers"):
        remember: Remember = load(path)
        if inspect.iscoroutinefunction(remember) or len(parameters_of(remember)) != 5:
            raise ValueError(
                f"{path} must be a function without `async` that has 5 parameters: before, "
                "trajectories, scores, seed, folder."
            )
        return remember


def tools_of(part: ToolPart) -> tuple[Tool, ...]:
    """Load the tools that an entry of the setting `tools` names.

    The entry names a tool. An entry with settings may also name a plain function that returns
    tools. Raises ValueError if the entry names anything else, or if the function returns objects
    that are not tools.
    """
    with at("tools"):
        if part.settings and inspect.isfunction(load(part.use)):
            made = tuple(part.make())
            if others := [one for one in made if not isinstance(one, Tool)]:
                raise ValueError(f"{part.use} returned {others[0]!r:.100}, expected tools.")
            return made
        tool = _named(part.use, Tool)
        return (tool.with_settings(**part.settings) if part.settings else tool,)


def reward_of(key: str, part: RewardPart) -> Reward:
    """Load the reward of an entry of the setting `rewards`, and apply the entry's settings.

    `part.use` is the import path of the reward. If it is empty, `key` is the import path. Raises
    ValueError if the path does not name a reward.
    """
    with at("rewards"):
        declared = _named(part.use or key, Reward)
        if part == RewardPart(weight=part.weight):
            return declared
        limits = {"timeout": part.timeout, "retries": part.retries, "concurrency": part.concurrency}
        given: dict[str, Any] = {key: limit for key, limit in limits.items() if limit is not None}
        changed = replace(
            declared, name=key if part.use else declared.name, declared=declared, **given
        )
        return changed.with_settings(**part.model_extra) if part.model_extra else changed


def limits_of(pools: Mapping[str, PoolSettings]) -> dict[type[Environment], Limit]:
    """Load environment classes, each with its maximum number, lifetime and settings (`Limit`).

    `pools` maps the import path of each class to these limits and settings. Raises ValueError if a
    path does not name a subclass of `Environment`, or if a setting is wrong.
    """
    limits = {}
    with at("environments"):
        for path, pool in pools.items():
            kind = load(path)
            if not (isinstance(kind, type) and issubclass(kind, Environment)):
                raise ValueError(
                    f"{path} is no environment, expected a subclass of agentfly_core.Environment."
                )
            settings = check_settings(kind, pool.settings)
            limits[kind] = Limit(pool.limit, pool.max_uses, pool.lifetime, settings)
    return limits


def _named(path: str, kind: type[P]) -> P:
    part = load(path)
    if not isinstance(part, kind):
        wanted, given = kind.__name__, type(part).__name__
        advice = f"decorate it with @{wanted.lower()}"
        if isinstance(part, Tool | Reward):
            advice = f"move it to the setting `{given.lower()}s`"
        raise ValueError(f"{path} has the type {given}, expected {wanted}: {advice}.")
    return part


def check_hidden_states(tasks: Mapping[str, Task], place: Site) -> None:
    """Raise ValueError if an agent reads hidden states and the site's sampler returns none."""
    readers = [task for task in tasks.values() if getattr(task.agent, "reads_hidden_states", False)]
    if readers and place.sampler == "vllm":
        raise ValueError(
            f"The agent {injection.name(readers[0].agent)!r} reads hidden states, but vLLM returns "
            "no hidden states. Set AGENTFLY_SAMPLER=transformers."
        )
