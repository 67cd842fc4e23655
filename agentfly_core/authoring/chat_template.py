"""The interface of chat templates. A chat template encodes conversations and parses replies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentfly_core.records.trajectory import Message, Observation, Problem
from agentfly_core.system.formats.json_value import JSON


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The schema of a tool. `parameters` is a JSON schema of an object.

    `ToolSchema("calculator", "Work out an expression.", {"type": "object", "properties":
    {"expression": {"type": "string"}}, "required": ["expression"]})`
    """

    name: str
    description: str
    parameters: Mapping[str, JSON]

    @property
    def listed(self) -> dict[str, JSON]:
        """The schema in the format of OpenAI's API: `{"type": "function", "function": {...}}`."""
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

    `chain` is the index of the episode among the problem's episodes. `turn` is the index of the
    reply in the episode. Concurrent replies have the same `turn`. `seed` differs between replies to
    the same prompt. `speaker` is the name of the agent, or of a speaker made by `Episode.speaker`.
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
        """Sort key of the request in a batch: problem, index of the episode, turn."""
        return self.problem.id, self.chain, self.turn


class ChatTemplate(Protocol):
    """The chat format of a family of models.

    A conversation can be encoded at once with `open`. It can also be built up: `open` encodes the
    first messages, and after each sampled reply, `extend` encodes the next messages. Both ways give
    the same tokens if the tokenizer encodes the text of each reply as the tokens that were sampled.
    Text of users and tools never becomes special tokens.
    """

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """The tokens that end a reply."""

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """Encode a whole prompt, including the header of the next reply."""

    def extend(
        self,
        reply: Sequence[int],
        read: Sequence[Message | Observation],
        before: Sequence[Message | Observation] = (),
    ) -> tuple[int, ...] | None:
        """Encode the messages `read` that follow a reply.

        `reply` contains the tokens of the reply. `before` contains all messages up to and
        including the reply. The result ends with the header of the next reply. If `reply` was cut
        before its end-of-turn token, the result begins with this token, which is not trained.
        Returns None if the new messages change how the template renders `before`. A new context
        then starts.
        """

    def fit(self, text: str, tokens: int) -> str:
        """Shorten an observation's text to at most `tokens` tokens, by cutting out its middle."""

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """Parse the tokens of a reply into a message with its text, without markup, and its tool
        calls.

        Tool calls that cannot be read become BadCall. If the reply ended at a stop string, pass the
        possible strings as `stop`: the text then ends before the string.
        """
