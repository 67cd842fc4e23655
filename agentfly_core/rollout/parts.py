"""What an experiment names by import path, imported and made with its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.config.import_path import at, check_settings, load
from agentfly_core.config.parts import Pool, RewardPart, ToolPart
from agentfly_core.rollout.pool import Limit

P = TypeVar("P")


def tool_of(part: ToolPart) -> Tool:
    """The tool, with its settings; raises ValueError for what is none."""
    with at("tools"):
        found = _named(part.use, Tool)
        return found.with_settings(**part.model_extra) if part.model_extra else found


def reward_of(key: str, part: RewardPart) -> Reward:
    """The reward that stands at a key, with what the experiment sets of it; raises ValueError for
    what is none.
    """
    with at("rewards"):
        found = _named(part.use or key, Reward)
        if part == RewardPart(weight=part.weight):
            return found
        made = found.with_settings(**part.model_extra) if part.model_extra else found
    return replace(
        made,
        name=key if part.use else made.name,
        timeout=made.timeout if part.timeout is None else part.timeout,
        retries=made.retries if part.retries is None else part.retries,
        concurrency=made.concurrency if part.concurrency is None else part.concurrency,
        declared=found,
    )


def limits_of(pools: Mapping[str, Pool]) -> dict[type[Environment], Limit]:
    """The kinds of environments and how many there are; raises ValueError for what is none."""
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
    found = load(path)
    if not isinstance(found, kind):
        name = kind.__name__
        raise ValueError(
            f"{path} is a {type(found).__name__}, expected a {name}: decorate it with "
            f"@{name.lower()}."
        )
    return found
