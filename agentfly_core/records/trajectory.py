"""The record of an episode: tokens enter once, as sampled, and are never re-tokenized from text.

The loss mask is not a field: it is the type of the span. `Given` was read by the model and is never
trained, `Sampled` was chosen by the model and is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Finish = Literal["stop", "length"]
Role = Literal["train", "baseline", "evaluation", "demonstration"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that could be read: `ToolCall("calculator", {"expression": "41+58"})`."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BadCall:
    """An unreadable call: `BadCall('{"name": "calc', "unterminated string at character 14")`."""

    text: str
    fault: str


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message: `Message("user", "What is 41+58?")`; a reply also has its parsed calls."""

    role: Literal["system", "user", "assistant"]
    content: str
    calls: tuple[ToolCall | BadCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """A tool's answer: `Observation("calculator", "99")`; `error`: about a mistake of the model."""

    tool: str
    content: str
    error: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """Tokens read by the model, never trained: `Given((1, 87, 203, 4))`."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens chosen by the model, with the log-probability of each at the sampling temperature.

    `Sampled((57, 12, 2), (-0.11, -1.9, -0.002), policy_version=6, finish="stop")`; raises
    ValueError when the two differ in length.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_version: int
    finish: Finish

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.logprobs):
            raise ValueError(
                f"Sampled has {len(self.tokens)} tokens and {len(self.logprobs)} "
                "log-probabilities; a sampler must return one log-probability for each token."
            )


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model newly read, then its reply; `given` is only what is new since the turn before.

    `fresh_context` says that `given` holds the whole (rewritten) context and starts a new row.
    `state` is what the environments called their state before the reply, empty where none does.
    """

    read: tuple[Message | Observation, ...]
    given: Given
    reply: Message
    sampled: tuple[Sampled, ...]
    fresh_context: bool = False
    state: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A task: `Problem("add-41-58", "What is 41+58?", {"answer": "99"})`; `facts`: for rewards."""

    id: str
    prompt: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Ending(StrEnum):
    """Why an episode ended."""

    TERMINAL = "terminal"
    NO_TOOL_CALLS = "no_tool_calls"
    MAX_TURNS = "max_turns"
    MAX_MODEL_LEN = "max_model_len"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Score:
    """What a reward finds: `Score(0.5, parts={"format": 1.0, "tag": 0.0}, per_turn=(0.0, 0.5))`."""

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    per_turn: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Unscored:
    """A missing reward and why: excluded, counted, never 0: `Unscored("exact: TimeoutError")`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Branch:
    """The parent of a trajectory in tree search: they share the parent's first `turns` turns."""

    parent: str
    turns: int


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one agent's tokens in an episode.

    `closing` holds what was answered after the last reply and never read by the model (the output
    of a tool that ends the episode); `observed` the rewards that needed the environment; `error`
    says why an episode ended FAILED.
    """

    id: str
    episode: str
    problem: Problem
    group: str
    chain: int
    agent: str
    role: Role
    turns: tuple[Turn, ...]
    closing: tuple[Observation, ...]
    ending: Ending
    error: str | None
    observed: Mapping[str, Score | Unscored]
    seed: int
    branch: Branch | None = None

    @property
    def answer(self) -> str | None:
        """The output of the tool that ended it, else the last reply without calls, else None."""
        if self.ending is Ending.TERMINAL:
            return self.closing[-1].content
        return self.turns[-1].reply.content if self.ending is Ending.NO_TOOL_CALLS else None

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Every answer of a tool, in order, whether or not the model went on to read it."""
        read = [item for turn in self.turns for item in turn.read if isinstance(item, Observation)]
        return (*read, *self.closing)

    @property
    def sampled_tokens(self) -> int:
        """The number of tokens that the model sampled."""
        return sum(len(span.tokens) for turn in self.turns for span in turn.sampled)


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of one trajectory, kept apart from it so that stored rollouts can be scored again.

    `rewards` by name, `turn_rewards` one number a turn (empty when no reward gave any), `reward`
    the weighted sum.
    """

    trajectory_id: str
    rewards: Mapping[str, float]
    turn_rewards: tuple[float, ...]
    reward: float | Unscored
