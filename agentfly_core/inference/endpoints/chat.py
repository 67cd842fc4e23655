"""Requests to a chat service in the format of OpenAI's API, and the replies to them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.records.messages import arguments_of
from agentfly_core.records.trajectory import BadCall, Message, Observation, ToolCall
from agentfly_core.system.formats.json_value import JSON


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request: `ChatRequest((Message("user", "What is 41+58?"),), max_tokens=64)`.

    `messages` may contain tool results (Observation objects). The results after a message with tool
    calls belong to these calls, in the same order. All other tool results are sent as user
    messages.
    """

    messages: tuple[Message | Observation, ...]
    tools: tuple[ToolSchema, ...] = ()
    temperature: float = 1.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()

    def body(self) -> dict[str, JSON]:
        """The request as JSON, but without the name of the model."""
        return {
            "messages": list(_written(self.messages)),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            **({"tools": [tool.listed for tool in self.tools]} if self.tools else {}),
            **({"stop": list(self.stop)} if self.stop else {}),
        }


def reply_of(answer: JSON) -> Message:
    """Return the reply in the JSON of a chat service.

    `Message.cut` is True if the token limit ended the reply.

    Raises ValueError if the JSON contains no reply.
    """
    try:
        choice: Any = answer["choices"][0]  # type: ignore[index,call-overload]
        message = choice["message"]
        content, calls = message.get("content") or "", message.get("tool_calls") or ()
        tool_calls = tuple(read_call(call["function"]) for call in calls)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError("choices[0].message is missing or unreadable") from error
    if not isinstance(content, str):
        raise ValueError("choices[0].message.content is not text")
    return Message("assistant", content, tool_calls, choice.get("finish_reason") == "length")


def tokens_of(answer: Mapping[str, JSON]) -> int:
    """Return `usage.total_tokens` of an answer, or 0 if this number is missing or invalid."""
    usage = answer.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return max(total, 0) if isinstance(total, int) and total is not True else 0


def _written(messages: Sequence[Message | Observation]) -> Iterator[JSON]:
    waiting: list[str] = []
    for number, item in enumerate(messages):
        if isinstance(item, Observation) and waiting:
            yield {"role": "tool", "tool_call_id": waiting.pop(0), "content": item.content}
        elif isinstance(item, Observation):
            yield {"role": "user", "content": item.content}
        elif item.calls:
            waiting = [f"call_{number}_{place}" for place in range(len(item.calls))]
            calls: list[JSON] = [
                {"id": name, "type": "function", "function": _function(call)}
                for name, call in zip(waiting, item.calls, strict=True)
            ]
            yield {"role": item.role, "content": item.content, "tool_calls": calls}
        else:
            yield {"role": item.role, "content": item.content}


def _function(call: ToolCall | BadCall) -> JSON:
    if isinstance(call, BadCall):
        return {"name": "unreadable", "arguments": json.dumps({"text": call.text})}
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    return {"name": call.name, "arguments": arguments}


def read_call(function: Mapping[str, Any]) -> ToolCall | BadCall:
    """Read a tool call such as `{"name": "add", "arguments": "{}"}`. An invalid call becomes
    BadCall.
    """
    name, written = function["name"], function.get("arguments") or None
    text = json.dumps({"name": name, "arguments": written or "{}"}, ensure_ascii=False)
    if not isinstance(name, str):
        return BadCall(text, "expected a text as the name of a tool")
    try:
        return ToolCall(name, arguments_of(name, written))
    except ValueError as error:
        return BadCall(text, str(error))
