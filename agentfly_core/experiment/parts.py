"""Import the parts that an experiment names, with their settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.injection import kinds_needed
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.config.import_path import at, check_settings, construct, load
from agentfly_core.config.parts import Part, PoolSettings, RewardPart, ToolPart
from agentfly_core.rollout.pool import Limit

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

P = TypeVar("P")


def tool_of(part: ToolPart) -> Tool:
    """Load a tool with its settings; raises ValueError for other objects."""
    with at("tools"):
        tool = _named(part.use, Tool)
        return tool.with_settings(**part.model_extra) if part.model_extra else tool


def reward_of(key: str, part: RewardPart) -> Reward:
    """Load the reward of a key with its settings; raises ValueError for other objects."""
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


def template_of(part: Part, tokenizer: PreTrainedTokenizerBase) -> ChatTemplate:
    """The chat template, for a model of this tokenizer."""
    made: ChatTemplate = construct(load(part.use), part.settings, {"tokenizer": tokenizer})
    return made


def limits_of(pools: Mapping[str, PoolSettings]) -> dict[type[Environment], Limit]:
    """Load environments with their limits; raises ValueError for other classes."""
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


def refuse_misfits(
    tools: Sequence[Tool], rewards: Sequence[Reward], limits: Mapping[type[Environment], Limit]
) -> None:
    """Raise ValueError for two tools or rewards of one name, or an environment without a limit."""
    called = [("tool", tool.schema.name) for tool in tools]
    called += [("reward", reward.name) for reward in rewards]
    for (what, name), count in Counter(called).items():
        if count > 1:
            raise ValueError(
                f"{count} {what}s are called {name!r}; give each another name, `@{what}(name=...)`."
            )
    for part in (*tools, *rewards):
        for kind in kinds_needed([part]):
            if kind not in limits:
                path = f"{kind.__module__}:{kind.__qualname__}"
                raise ValueError(
                    f"{part.what} needs a {kind.__name__}, but its limit is missing. Set a limit, "
                    f"for example `environments: {{{path}: 8}}`."
                )


def _named(path: str, kind: type[P]) -> P:
    part = load(path)
    if not isinstance(part, kind):
        wanted, given = kind.__name__, type(part).__name__
        advice = f"decorate it with @{wanted.lower()}"
        if isinstance(part, Tool | Reward):
            advice = f"name it in `{given.lower()}s`"
        raise ValueError(f"{path} is a {given}, expected a {wanted}: {advice}.")
    return part
