"""The interface of chat templates, which encode conversations and parse replies."""

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

    `chain` is the episode's number among the problem's episodes, and `turn` the reply's number in
    the episode; both count from 0. Concurrent replies have the same `turn`. `seed` differs between
    replies to the same prompt. `speaker` is the name of the agent, or of a speaker made by
    `Episode.speaker`.
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
        """Sort key of the request in a batch: problem, number of the problem's episode, turn."""
        return self.problem.id, self.chain, self.turn


class ChatTemplate(Protocol):
    """The chat format of one family of models.

    `open` of a whole conversation equals `open` of its beginning, followed by each reply and the
    `extend` after it, if the tokenizer encodes the replies' text with the sampled tokens. Text of
    users and tools never becomes special tokens.
    """

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """The tokens that end a reply."""

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """Encode the whole prompt, up to and including the header of the next reply."""

    def extend(
        self,
        reply: Sequence[int],
        read: Sequence[Message | Observation],
        before: Sequence[Message | Observation] = (),
    ) -> tuple[int, ...] | None:
        """Encode the messages `read` after `reply`, which is the last message of `before`.

        The tokens go up to the header of the next reply. They begin with the end-of-turn token if
        `reply` was cut before it; that token is not trained. Returns None if the template renders
        `before` differently after these messages; then a new context starts.
        """

    def fit(self, text: str, tokens: int) -> str:
        """Shorten an observation's text in the middle to at most `tokens` tokens."""

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """Parse a reply to its text without markup and its calls. Unreadable calls become BadCall.

        Pass `stop` for a reply that a stop string ended: the text then ends before that string.
        """
