"""Conversations, and the chat template interface that encodes them and parses replies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentfly_core.records.trajectory import Message, Observation, Problem
from agentfly_core.system.formats.json_value import JSON


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool's schema; `parameters` is a JSON schema of an object.

    `ToolSchema("calculator", "Work out an expression.", {"type": "object", "properties":
    {"expression": {"type": "string"}}, "required": ["expression"]})`
    """

    name: str
    description: str
    parameters: Mapping[str, JSON]

    @property
    def listed(self) -> dict[str, JSON]:
        """The schema in the form of chat services: `{"type": "function", "function": {...}}`."""
        fields = {"name": self.name, "description": self.description}
        return {"type": "function", "function": {**fields, "parameters": self.parameters}}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation to which a policy replies.

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

    The next reply is number `turn`, from 0, of the problem's episode `chain`; concurrent replies
    have the same number. `seed` differs for replies to the same prompt. `speaker` is the agent or
    one of `Episode.speaker`.
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
        """(problem, chain, turn): with the seed the order of requests in a batch."""
        return self.problem.id, self.chain, self.turn


class ChatTemplate(Protocol):
    """The chat format of one family of models.

    `open` of a conversation equals `open` of its beginning, followed by replies and `extend`, for
    replies in the tokenizer's own encoding. Text of users and tools is encoded without special
    tokens.
    """

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """The tokens that end a reply."""

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """The whole prompt, up to and including the header of the reply to come."""

    def extend(
        self,
        reply: Sequence[int],
        read: Sequence[Message | Observation],
        before: Sequence[Message | Observation] = (),
    ) -> tuple[int, ...] | None:
        """The tokens between `reply`, the last message of the conversation `before`, and the next.

        They begin with the end-of-turn token iff `reply` was cut; that token is not trained. None
        if the template now renders `before` differently; a new context starts then.
        """

    def fit(self, text: str, tokens: int) -> str:
        """An observation's text, shortened in the middle to at most `tokens` tokens."""

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """The assistant's text without markup, and its calls, unreadable ones as BadCall.

        The text ends before the first `stop` string, given for a reply that ended at one.
        """
