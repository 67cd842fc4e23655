"""Which kinds of environment tools and rewards need, and whether there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from agentfly_core.authoring.environment import Environment, in_order
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.rollout.pool import Limit


def kinds_needed(tools: Sequence[Tool], rewards: Sequence[Reward]) -> tuple[type[Environment], ...]:
    """The kinds of environment that tools and rewards ask for, in the order of leasing."""
    parts: tuple[Tool | Reward, ...] = (*tools, *rewards)
    needed = {kind for part in parts for kind in part.needs.values()}
    return in_order(kind for kind in needed if issubclass(kind, Environment))


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
    for kind in kinds_needed(tools, rewards):
        if kind not in limits:
            path = f"{kind.__module__}:{kind.__qualname__}"
            raise ValueError(
                f"A tool or reward asks for a {kind.__name__} and there is no limit for it; say "
                f"how many there may be, for example `environments: {{{path}: 8}}`."
            )
