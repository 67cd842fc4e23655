"""A conversation as a policy reads it, and the chat template interface, which renders it to tokens
and parses replies to messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentfly_core.records.trajectory import Message, Observation, Problem
from agentfly_core.system.formats.json_value import JSON


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """What a model reads about a tool; `parameters` is a JSON schema of an object.

    `ToolSchema("calculator", "Work out an expression.", {"type": "object", "properties":
    {"expression": {"type": "string"}}, "required": ["expression"]})`
    """

    name: str
    description: str
    parameters: Mapping[str, JSON]

    @property
    def listed(self) -> dict[str, JSON]:
        """As chat services and templates list it: `{"type": "function", "function": {...}}`."""
        fields = {"name": self.name, "description": self.description}
        return {"type": "function", "function": {**fields, "parameters": self.parameters}}


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a policy replies to: what it was asked, what it said and what the tools answered so far.

        Conversation(
            problem=Problem("add-41-58", "What is 41+58?", {"answer": "99"}),
            chain=3,
            turn=1,
            messages=(
                Message("user", "What is 41+58?"),
                Message("assistant", "", (ToolCall("calculator", {"expression": "41+58"}),)),
                Observation("calculator", "99"),
            ),
            tools=(ToolSchema("calculator", "Work out an expression.", {...}),),
            seed=5577006791,
            speaker="tool_loop",
        )

    The reply to come is number `turn`, counted from 0, of the problem's episode number `chain`;
    those that an agent asks for at the same time have the same number. `seed` is another one for
    each reply. `speaker` is who replies: the agent, or one of `Episode.speaker`.
    """

    problem: Problem
    chain: int
    turn: int
    messages: tuple[Message | Observation, ...]
    tools: tuple[ToolSchema, ...]
    seed: int
    speaker: str = ""

    @property
    def order(self) -> tuple[str, int, int]:
        """(problem, chain, turn): a batch of requests is sorted by it, and by the seed where an
        agent asks for several replies at the same time; never by arrival.
        """
        return self.problem.id, self.chain, self.turn


class ChatTemplate(Protocol):
    """The chat format of one family of models.

    A template is append-only, token by token: for replies that are the tokenizer's own encoding,
    `open` of a whole conversation is `open` of its beginning, then each reply's tokens and what
    `extend` says follows them. Text of users and tools is encoded with special tokens disabled.
    """

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """The tokens that end a reply."""

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """The whole prompt, up to and including the header of the reply to come."""

    def extend(
        self, reply: Sequence[int], read: Sequence[Message | Observation]
    ) -> tuple[int, ...]:
        """The tokens between the last of `reply` and the first of the next reply.

        They begin with the end-of-turn token iff `reply` lacks it (it was cut): that token is
        given, never trained.
        """

    def fit(self, text: str, tokens: int) -> str:
        """An observation's text, without its middle where it would exceed `tokens` tokens."""

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """The assistant's text without the calls' markup, and its calls, unreadable as BadCall.

        The text ends before the first of the `stop` strings, which are given for a reply that ended
        at one of them.
        """
