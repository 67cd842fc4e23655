"""A template whose tokens are letters, so that every token of an episode can be written out by hand.

    ^u41+58?$^a<calculator expression=41+58>$^t99$^a99$

A token is the code point of its letter; `^` opens a message, the next letter is its role, `$` ends it and is the stop
token. Text of users and tools cannot write either: there they are `_`. A call is `<tool key=value key=value>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.formats.hashing import seed
from agentfly_core.formats.text import clip
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.scripted import Scripted
from agentfly_core.records.timing import Timing
from agentfly_core.records.trajectory import BadCall, Message, Observation, Problem, ToolCall, Trajectory
from agentfly_core.rollout.episode import Agent, EpisodeSpec
from agentfly_core.rollout.resources import Limit, ResourceManager
from agentfly_core.rollout.shard import collect
from agentfly_core.rollout.spec import RolloutSpec

STOP = ord("$")
ADD = Problem("add-41-58", "41+58?", {"answer": "99"})
_CALL = re.compile(r"<([^<>]*)(>?)")


def encode(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def decode(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))


class Letters:
    stop_tokens = (STOP,)

    def open(self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]) -> tuple[int, ...]:
        return encode("".join(map(_written, messages)) + "^a")

    def extend(self, reply: Sequence[int], read: Sequence[Message | Observation]) -> tuple[int, ...]:
        ended = reply[-1] == STOP
        return encode(("" if ended else "$") + "".join(map(_written, read)) + "^a")

    def fit(self, text: str, tokens: int) -> str:
        return clip(text, tokens)

    def parse(self, reply: Sequence[int]) -> Message:
        text = decode(reply).removesuffix("$")
        return Message("assistant", _CALL.sub("", text), tuple(_call(*found) for found in _CALL.findall(text)))


def _written(item: Message | Observation) -> str:
    role = "t" if isinstance(item, Observation) else item.role[0]
    return f"^{role}{item.content.replace('^', '_').replace('$', '_')}$"


def _call(text: str, closed: str) -> ToolCall | BadCall:
    if not closed:
        return BadCall(text, "> is missing")
    name, *pairs = text.split()
    return ToolCall(name, dict(pair.split("=", 1) for pair in pairs))


def spec(
    *tools: Tool,
    rewards: Sequence[Reward] = (),
    agent: Agent = tool_loop,
    system: str = "",
    max_turns: int = 4,
    max_tokens: int = 100,
    max_observation_tokens: int = 200,
    max_model_len: int = 1000,
    deadline: float = 60.0,
    limits: Mapping[type[Environment], int] | None = None,
    template: Any = None,
) -> RolloutSpec:
    return RolloutSpec(
        template=template or Letters(),
        tools=tools,
        rewards=tuple(rewards),
        agent=agent,
        system=system,
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_observation_tokens=max_observation_tokens,
        max_model_len=max_model_len,
        deadline=deadline,
        limits={kind: Limit(limit) for kind, limit in (limits or {}).items()},
    )


def scripted(script: Callable[[str, int, int], str]) -> Scripted:
    return Scripted(encode, STOP, script)


def assigned(*problems: Problem, chains: int = 1) -> list[EpisodeSpec]:
    return [
        EpisodeSpec(problem, chain, 7, "train", 1.0, seed(0, 7, problem.id, chain))
        for problem in problems
        for chain in range(chains)
    ]


def silent(trajectory: Trajectory) -> None:
    """Nobody watches."""


async def collected(
    episode_specs: Sequence[EpisodeSpec],
    rules: RolloutSpec,
    sampler: Sampler,
    watch: Callable[[Trajectory], None] = silent,
) -> tuple[list[Trajectory], list[Timing], dict[str, float]]:
    """A shard, played with environments of its own."""
    async with ResourceManager(rules.limits) as resources:
        return await collect(episode_specs, rules, sampler, watch, resources)


async def play(replies: Sequence[str], *tools: Tool, **settings: Any) -> Trajectory:
    """One episode of ADD whose replies are given."""
    sampler = scripted(lambda problem, chain, turn: replies[turn])
    (trajectory,), *_ = await collected(assigned(ADD), spec(*tools, **settings), sampler)
    return trajectory


def tokens(trajectory: Trajectory) -> str:
    """All its tokens as letters."""
    turns = trajectory.turns
    return "".join(decode(turn.given.tokens) + "".join(decode(s.tokens) for s in turn.sampled) for turn in turns)


def mask(trajectory: Trajectory) -> str:
    """One letter a token: `.` read, `x` sampled."""
    turns = trajectory.turns
    return "".join("." * len(turn.given.tokens) + "x" * sum(len(s.tokens) for s in turn.sampled) for turn in turns)
