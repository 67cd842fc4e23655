"""Read chats from data files, in OpenAI's format (messages with parts and tool calls) and in
ShareGPT's format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from agentfly_core.config.mismatch import message_of, place
from agentfly_core.datasets.traces import RecordedCall
from agentfly_core.records.messages import arguments_of, call_id, call_of
from agentfly_core.records.trajectory import Message, Observation, ToolCall
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import shown

ROLES = {
    "developer": "system",
    "human": "user",
    "gpt": "assistant",
    "function": "tool",
    "observation": "tool",
}
"""Maps role names of other chat formats to role names of OpenAI's format."""
Messages = tuple[Message | Observation, ...]
Speaks = Literal["user", "assistant"]
WRITTEN = re.compile(r"\s*\[\s*\{\s*[\"'](?:role|from|content|value)[\"']\s*:")
"""Matches the beginning of a string that contains a list of messages, as in a CSV cell."""
MAX_BYTES = 2**31


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """A reply of the assistant in a data file.

    `messages` is the conversation, which ends with the reply. `trained` is whether the reply
    contributes to the training loss. `call` has the token ids of the prompt and of the reply, or is
    None for a file without token ids.
    """

    messages: Messages
    trained: bool
    call: RecordedCall | None = None

    @property
    def message(self) -> Message:
        """The message of the reply: the last entry of `messages`."""
        message = self.messages[-1]
        assert isinstance(message, Message)
        return message

    def continues(self, other: RecordedReply) -> bool:
        """Whether this reply is a later reply in the same conversation as `other`.

        This is the case if the messages before this reply begin with the messages of `other`. If
        both replies have token ids, the token ids are compared, too.
        """
        size = len(other.messages)
        if size >= len(self.messages) or other.messages != self.messages[:size]:
            return False
        # a server may render earlier messages with different ids; then the reply does not continue
        if self.call is None or other.call is None:
            return True
        tokens = (*other.call.prompt, *other.call.sampled)
        return self.call.prompt[: len(tokens)] == tokens


@dataclass(frozen=True, slots=True)
class RecordedChat:
    """The messages of a chat, and whether each message contributes to the training loss:
    `RecordedChat((Message("user", "1+1?"), Message("assistant", "2")), (False, True))`.
    """

    messages: Messages
    trained: tuple[bool, ...]

    @property
    def opening(self) -> Messages:
        """The messages of the chat. If the last message is an assistant message, it is left out."""
        return self.messages[:-1] if is_reply(self.messages[-1]) else self.messages

    @property
    def replies(self) -> tuple[RecordedReply, ...]:
        """The replies: each message of the assistant, together with all messages before it."""
        places = reply_places(self.messages)
        return tuple(RecordedReply(self.messages[: at + 1], self.trained[at]) for at in places)

    @property
    def closing(self) -> tuple[Observation, ...]:
        """The tool results after the last reply of the chat."""
        last = self.messages[reply_places(self.messages)[-1] :]
        return tuple(item for item in last if isinstance(item, Observation))

    @property
    def question(self) -> str:
        """The text of the last message of the user.

        Raises ValueError if the chat does not contain a message of the user.
        """
        questions = [
            m.content for m in self.messages if isinstance(m, Message) and m.role == "user"
        ]
        if not questions:
            raise ValueError("its messages lack a user message")
        return questions[-1]

    def followed_by(self, completion: RecordedChat) -> RecordedChat:
        """Return the chat with the messages of `completion` appended.

        The messages of this chat do not contribute to the training loss. The appended messages
        contribute as in `completion`. Raises ValueError if the order of the messages is invalid.
        """
        untrained = (False,) * len(self.messages)
        return RecordedChat(
            (*self.messages, *completion.messages), (*untrained, *completion.trained)
        ).checked()

    def checked(self) -> RecordedChat:
        """Check that the order of the messages is valid, and return this chat.

        Raises ValueError for an invalid order, such as two consecutive assistant messages.
        """
        before: Message | Observation | None = None
        for number, item in enumerate(self.messages, 1):
            if fault := _order_fault(before, item):
                raise ValueError(f"message {number} {fault}")
            before = item
        return self


def text_chat(role: Speaks, text: str) -> RecordedChat:
    """Return a chat with one message. The message is trained on if `role` is `assistant`."""
    return RecordedChat((Message(role, text),), (role == "assistant",))


def chat_of(value: Any) -> RecordedChat:
    """Read a chat from a list of messages, or from a text that contains such a list in JSON.

    Raises ValueError if the list is invalid. The error message is a phrase such as "message 3 has
    the role 'bot', expected ...".
    """
    if isinstance(value, str):
        try:
            value = strict_json.parse(value, MAX_BYTES)
        except ValueError as error:
            raise ValueError(f"it is a text, but not JSON: {error}") from None
    try:
        read = _MESSAGES.validate_python(value)
    except ValidationError as error:
        raise ValueError(_fault(error)) from None
    messages = tuple(_items(read))
    trained = (
        one.train is not False and is_reply(item) for one, item in zip(read, messages, strict=True)
    )
    return RecordedChat(messages, tuple(trained))


def _role(value: Any) -> Any:
    return ROLES.get(value, value) if isinstance(value, str) else value


def _text(value: Any) -> Any:
    """Return the content of a message as text.

    The content may be null, a text, or a list of text parts. Each part becomes a line. Raises
    ValueError for parts of another type, such as pictures. Other invalid values are returned
    unchanged, and pydantic refuses them later.
    """
    if not isinstance(value, list):
        return "" if value is None else value
    parts = [part for part in value if isinstance(part, Mapping)]
    # pictures are refused, because leaving them out would change the question
    if any(part.get("type") != "text" for part in parts):
        raise ValueError(
            "expected parts of the type 'text'; training supports no pictures or sound"
        )
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return "\n".join(texts) if len(texts) == len(value) else value


class _Function(BaseModel):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(BaseModel):
    function: _Function
    id: str | None = None


class _Written(BaseModel):
    """A message of a data file, before its conversion to a `Message` or an `Observation`."""

    role: Annotated[
        Literal["system", "user", "assistant", "tool", "function_call"], BeforeValidator(_role)
    ] = Field(validation_alias=AliasChoices("role", "from"))
    content: Annotated[str, BeforeValidator(_text)] = Field(
        "", validation_alias=AliasChoices("content", "value")
    )
    reasoning: str | None = Field(
        None, validation_alias=AliasChoices("reasoning_content", "reasoning")
    )
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    train: bool | None = Field(None, validation_alias=AliasChoices("train", "weight"))

    def calls(self) -> dict[str, ToolCall]:
        """Return the tool calls of the message, by id. Raises ValueError if an id is repeated."""
        if self.role == "function_call":
            return {"": call_of(strict_json.parse(self.content))}
        named = [(call.id, call.function) for call in self.tool_calls or ()]
        ids = [name for name, _ in named if name]
        if twice := [name for name in ids if ids.count(name) > 1]:
            raise ValueError(f"the id {twice[0]!r} belongs to two calls; give each call its own id")
        return {
            # calls without ids are answered in order
            name or f"#{place}": ToolCall(
                call.name, arguments_of(call.name, call.arguments), id=call_id(name)
            )
            for place, (name, call) in enumerate(named)
        }


_MESSAGES = TypeAdapter(Annotated[list[_Written], Field(min_length=1)])


def _items(read: Sequence[_Written]) -> Iterator[Message | Observation]:
    """Convert messages of a data file to `Message` and `Observation` objects.

    Raises ValueError if tool calls and answers do not match.
    """
    waiting: dict[str, ToolCall] = {}
    answers: dict[str, Observation | None] = {}
    for number, one in enumerate(read, 1):
        try:
            if one.role == "tool":
                key, name = _answered(one, waiting)
                answers[key] = Observation(name, one.content)
                if not waiting:
                    yield from filter(None, answers.values())
                continue
            if waiting:
                names = ", ".join(call.name for call in waiting.values())
                raise ValueError(
                    f"the calls of {names} are not answered yet; before this message, add a "
                    "message with the role 'tool' for each of these calls"
                )
            waiting = one.calls()
            # answers are put in the order of the calls, as in stored episodes
            answers = dict.fromkeys(waiting)
        except ValueError as error:
            raise ValueError(f"message {number}: {error}") from None
        if one.role == "function_call":
            yield Message("assistant", "", tuple(waiting.values()))
        else:
            yield Message(
                one.role, one.content, tuple(waiting.values()), reasoning=one.reasoning or ""
            )
    if waiting:  # the chat ends before all calls are answered
        yield from filter(None, answers.values())


def _answered(answer: _Written, waiting: dict[str, ToolCall]) -> tuple[str, str]:
    """Find the call that the message `answer` answers, and remove it from `waiting`.

    `waiting` has the calls without a result, by id. Returns the id of the removed call, and the
    name of the call's tool. Raises ValueError if the call is not in `waiting`.
    """
    key = next(iter(waiting), "") if answer.tool_call_id is None else answer.tool_call_id
    if key not in waiting:
        raise ValueError(
            f"it answers the call {answer.tool_call_id!r}, expected a call without an answer "
            f"({', '.join(waiting) or 'none'}); correct tool_call_id, or put the assistant message "
            "with this call before this message"
        )
    return key, waiting.pop(key).name


def reply_places(messages: Messages) -> list[int]:
    """Return the indices of the messages of the assistant."""
    return [place for place, message in enumerate(messages) if is_reply(message)]


def is_reply(item: Message | Observation | None) -> bool:
    """Whether `item` is a message of the assistant."""
    return isinstance(item, Message) and item.role == "assistant"


def _order_fault(before: Message | Observation | None, item: Message | Observation) -> str:
    """Return why a message may not follow the message `before`, or an empty text if it may."""
    if isinstance(item, Observation):
        return ""
    if not (item.content.strip() or item.calls):
        return f"has the role {item.role!r} and is empty; add content, or remove the message"
    if item.role == "system" and before:
        return (
            "has the role 'system', which only the first message may have; merge it into the "
            "first message"
        )
    if item.role == "assistant" and is_reply(before):
        return "has the role 'assistant' after another assistant message; merge the two messages"
    opens = before is None or (isinstance(before, Message) and before.role == "system")
    if item.role == "assistant" and opens:
        return "has the role 'assistant', but no user message comes before it; add one"
    return ""


def _fault(error: ValidationError) -> str:
    """Describe the first error that pydantic found.

    The description has the position of the message, the wrong value and the expected value.
    """
    first = error.errors()[0]
    value, steps = shown(first["input"]), first["loc"]
    if not steps:
        return f"got {value}, expected a list of messages"
    where = place(steps[1:]) or "the value"
    if first["type"] == "missing":
        return f"message {int(steps[0]) + 1}: {value} lacks {where}"
    return f"message {int(steps[0]) + 1} has {where} {value}: {message_of(first)}"
