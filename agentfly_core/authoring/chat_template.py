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
        """Sort key of the conversation: the problem's id, the index of the episode, the turn."""
        return self.problem.id, self.chain, self.turn


class ChatTemplate(Protocol):
    """The chat format of a family of models.

    `open` encodes a whole conversation. An episode can also encode a conversation step by step:
    `open` encodes the first messages, and after each sampled reply, `extend` encodes the messages
    that follow. Both ways usually give the same tokens. They differ if the model samples the word
    `under` as the tokens `un` and `der`, but the tokenizer has the token `under`. Text of users and
    tools never becomes special tokens.
    """

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """The tokens that end a reply."""

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """Encode a whole prompt, including the tokens that open the next reply (its header)."""

    def extend(
        self,
        reply: Sequence[int],
        read: Sequence[Message | Observation],
        before: Sequence[Message | Observation] = (),
    ) -> tuple[int, ...] | None:
        """Encode the messages between a reply and the next reply.

        - `reply`: the tokens of the reply
        - `read`: the messages after the reply
        - `before`: all messages up to and including the reply

        The result ends with the header of the next reply. If the end-of-turn token of `reply` is
        missing, for example because of the token limit, the result begins with this token. Returns
        None if the new messages change the tokens of earlier messages. The whole conversation must
        then be encoded with `open`.
        """

    def fit(self, text: str, tokens: int) -> str:
        """Shorten an observation's text to at most `tokens` tokens, by cutting out its middle."""

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """Parse the tokens of a reply into a message with text (without markup) and tool calls.

        Each unreadable tool call becomes a BadCall. `stop` contains the stop strings of the
        request. The text of the message ends before the first stop string.
        """
