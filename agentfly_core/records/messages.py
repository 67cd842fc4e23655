"""Write messages of an episode as text.

This module also parses tool calls and writes them in the Hermes format.
"""

import json
import re
from collections.abc import Iterator, Mapping

from agentfly_core.records.trajectory import (
    BadCall,
    Message,
    Observation,
    ToolCall,
    Trajectory,
    Turn,
)
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.json_value import JSON

# sorted, because clients may reorder the arguments of a call
_as_key = json.JSONEncoder(sort_keys=True, default=repr).encode
_ID = re.compile("[a-zA-Z0-9]{9}")
CALL, CALL_END = "<tool_call>", "</tool_call>"
"""Tokens before and after a tool call in the Hermes format."""


def read_text(item: Message | Observation) -> str:
    """Format a message that the model read.

    A tool's answer begins with the tool's name: `calculator: 99`.
    """
    return f"{item.tool}: {item.content}" if isinstance(item, Observation) else item.content


def plain(item: Message | Observation) -> list[str]:
    """Return the role and the text of a message: `["user", "What is 41+58?"]`.

    For a tool's answer, the first entry is the tool's name: `["calculator", "99"]`.
    """
    if isinstance(item, Observation):
        return [item.tool, item.content]
    return [item.role, reply_text(item)]


def said_text(turn: Turn) -> str:
    """Format the reply of a turn for people.

    The reasoning comes first, in brackets. The reply's text and the calls follow. A call is written
    as `add({"number": 41})`.
    """
    calls = [
        f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})"
        if isinstance(call, ToolCall)
        else f"{call.text} (unreadable: {call.fault})"
        for call in turn.reply.calls
    ]
    reasoning = f"[reasoning: {turn.reply.reasoning}]" if turn.reply.reasoning else ""
    return "\n".join(part for part in (reasoning, turn.reply.content, *calls) if part)


def texts(trajectory: Trajectory) -> Iterator[str]:
    """Yield the prompt and then all messages of an episode in order."""
    yield trajectory.problem.prompt
    for turn in trajectory.turns:
        yield from map(read_text, turn.read)
        yield said_text(turn)
    yield from map(read_text, trajectory.closing)


def call_of(value: JSON) -> ToolCall:
    """Convert a JSON object to a call: `{"name": "add", "arguments": {"number": 41}}`.

    As in vLLM and TRL, three deviations are accepted: the arguments are missing, the arguments are
    a text that contains JSON, or the key is `parameters` instead of `arguments`. The field
    `lenient` of such a call is True. The id of the object becomes the id of the call, see
    `call_id`. Raises ValueError if the value is not a call.
    """
    if not isinstance(value, Mapping) or not isinstance(name := value.get("name"), str):
        raise ValueError('expected an object {"name": <text>, "arguments": <object>}')
    key = "arguments" if "arguments" in value else "parameters"
    written = value.get(key)
    lenient = key == "parameters" or not isinstance(written, Mapping)
    return ToolCall(name, arguments_of(name, written), lenient, call_id(value.get("id")))


def arguments_of(name: str, written: JSON) -> Mapping[str, JSON]:
    """Return the arguments of a call of the tool `name`.

    `written` is an object, a text that contains an object in JSON, or None for a call without
    arguments. Raises ValueError for any other value.
    """
    try:
        value = strict_json.parse(written) if isinstance(written, str) else written
    except ValueError as error:
        raise ValueError(f"the arguments of {name} are not JSON: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"expected an object as the arguments of {name}")
    return value


def call_id(written: object) -> str:
    """Return the id of a call if it consists of nine letters or digits, else an empty text.

    Mistral's chat templates refuse all other ids.
    """
    return written if isinstance(written, str) and _ID.fullmatch(written) else ""


def reply_text(reply: Message) -> str:
    """Return a reply as a model would write it: its text, followed by its calls in the Hermes
    format.
    """
    calls = (
        call.text
        if isinstance(call, BadCall)
        else json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        for call in reply.calls
    )
    parts = [reply.content, *(f"{CALL}\n{call}\n{CALL_END}" for call in calls)]
    return "\n".join(filter(None, parts))


def client_text(reply: Message) -> str:
    """Return the text of a reply for the field `content` that a chat client receives.

    Calls that could not be parsed (BadCall) are appended to the reply's own text as they were
    written.
    """
    unreadable = (call.text for call in reply.calls if isinstance(call, BadCall))
    return "\n".join(filter(None, [reply.content, *unreadable]))


def echo_key(item: Message | Observation) -> str:
    """Return a key that identifies a message when a chat client sends the message again.

    A chat client sends all earlier messages with each request. The key stays the same if the client
    changes the following in a reply: white space at the ends of the text, the reasoning, and the
    format of call arguments.
    """
    if isinstance(item, Observation):
        return _as_key(["tool", item.tool, item.content, item.error])
    if item.role != "assistant":
        return _as_key([item.role, item.content])
    calls = [
        [call.name, _with_whole_numbers(dict(call.arguments))]
        for call in item.calls
        if isinstance(call, ToolCall)
    ]
    return _as_key([item.role, client_text(item).strip(), calls])


def _with_whole_numbers(value: JSON) -> JSON:
    """Replace whole floats in a value by integers, because JavaScript writes 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _with_whole_numbers(one) for name, one in value.items()}
    return [_with_whole_numbers(one) for one in value] if isinstance(value, list) else value


def call_text(name: str, **arguments: JSON) -> str:
    """Return the text of a reply with a single call: `call_text("answer", answer="99")`."""
    return reply_text(Message("assistant", "", (ToolCall(name, arguments),)))
