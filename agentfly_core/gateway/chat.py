"""Conversion of chat completions.

Requests are read as messages, tools and sampling settings. Replies are written as completions.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.gateway.fields import FIELDS, Treatment
from agentfly_core.inference.endpoints.chat import read_call
from agentfly_core.records.messages import client_text
from agentfly_core.records.trajectory import Message, Observation, ToolCall
from agentfly_core.rollout.history import timeline
from agentfly_core.rollout.history.timeline import Reply
from agentfly_core.rollout.rules import Sampling
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import did_you_mean, shown, warn_once

MOST_CHOICES = 128
OVERRULED = Treatment.OVERRULED
_log = logging.getLogger(__name__)


class RequestRefused(ValueError):
    """An error that the client gets as a response: `RequestRefused("no such path", 404)`."""

    def __init__(
        self, message: str, status: int = 400, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    @property
    def body(self) -> dict[str, JSON]:
        """The JSON body of the error response, in the format of OpenAI's API."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        fields = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": fields}


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request for `n` replies to a conversation.

    - `stream`: whether to send the replies as server-sent events
    - `include_usage`: whether these events also report token counts
    - `logprobs`: whether to report the log-probability of each token
    - `overruled`: the names of the request's fields that the gateway ignores
    """

    model: str
    messages: tuple[Message | Observation, ...]
    sampling: Sampling
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    overruled: tuple[str, ...] = ()


def request_of(body: JSON) -> CompletionRequest:
    """Read the body of a request.

    Raises RequestRefused if the body is not a valid chat completion, or contains an unsupported
    field.
    """
    if not isinstance(body, Mapping):
        raise RequestRefused(f"The body is {shown(body)}, expected a JSON object.")
    fields: dict[str, Any] = {key: value for key, value in body.items() if value is not None}
    _require_treatable(fields)
    names = dict[str, str]()
    try:
        if not fields["messages"]:
            raise RequestRefused("The request has no messages.", param="messages")
        return CompletionRequest(
            model=str(fields.get("model", "")),
            messages=tuple(_message(one, names) for one in fields["messages"]),
            sampling=_sampling(fields),
            n=_number(fields, "n", 1, MOST_CHOICES),
            stream=bool(fields.get("stream")),
            include_usage=bool(fields.get("stream_options", {}).get("include_usage")),
            logprobs=bool(fields.get("logprobs")),
            overruled=tuple(name for name in fields if FIELDS[name].treatment is OVERRULED),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise RequestRefused(f"The request is not a chat completion: {error!r}.") from error


def _require_treatable(fields: Mapping[str, JSON]) -> None:
    for name, value in fields.items():
        rule = FIELDS.get(name)
        if rule is None or rule.treatment is Treatment.REFUSED:
            hint = did_you_mean(name, [*FIELDS]) if rule is None else ""
            raise RequestRefused(f"The field {name} is not supported.{hint}", param=name)
        if rule.treatment is Treatment.NEUTRAL and value not in rule.neutral:
            raise RequestRefused(
                f"The field {name} is {shown(value)}, expected {rule.note}, because training "
                "needs the probabilities of the whole reply. Remove the field.",
                param=name,
            )
        if rule.treatment is OVERRULED:
            reason = f": {rule.note}" if rule.note else ""
            warn_once(_log, f"The program's request field {name} is ignored{reason}.")


def _number(fields: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 1 <= value <= most:
        raise RequestRefused(
            f"The field {name} is {shown(value)}, expected an integer from 1 to {most}.", param=name
        )
    return value


def _sampling(fields: Mapping[str, Any]) -> Sampling:
    sampling = Sampling(tools=[*map(_tool, fields.get("tools", ()))])
    if stop := fields.get("stop"):
        sampling["stop"] = [stop] if isinstance(stop, str) else [*stop]
    # OpenAI renamed the field `max_tokens`; the newer name takes precedence
    for name in ("max_tokens", "max_completion_tokens"):
        if name in fields:
            sampling["max_tokens"] = _number(fields, name, 1, 2**31)
    variables = dict(fields.get("chat_template_kwargs", {}))
    if "enable_thinking" in variables:
        sampling["thinking"] = bool(variables.pop("enable_thinking"))
    if variables:
        raise RequestRefused(
            f"chat_template_kwargs has {shown([*variables])}, but a request can only set "
            "enable_thinking. Set other variables in `template` of the experiment.",
            param="chat_template_kwargs",
        )
    return sampling


def _tool(written: Mapping[str, Any]) -> ToolSchema:
    if written["type"] != "function":
        raise RequestRefused(f"Got a tool of type {shown(written['type'])}, expected function.")
    function = written["function"]
    empty: dict[str, JSON] = {"type": "object", "properties": {}}
    parameters: Mapping[str, JSON] = function.get("parameters") or empty
    return ToolSchema(function["name"], function.get("description") or "", parameters)


def _message(written: Mapping[str, Any], names: dict[str, str]) -> Message | Observation:
    """Convert a message of a request.

    `names` maps the ids of earlier tool calls to tool names. A tool message gets the tool's name
    from `names`. For tool calls in the message itself, the ids and tool names are added to `names`.
    """
    role, content = written["role"], _text(written.get("content"))
    if role == "tool":
        own = written.get("name") or "tool"
        return Observation(names.get(written.get("tool_call_id", ""), own), content)
    if role in ("user", "system"):
        return Message(role, content)
    if role == "developer":
        return Message("system", content)
    if role != "assistant" or written.get("function_call"):
        raise RequestRefused(
            f"A message with the role {shown(role)} cannot be read. Use the role system, "
            "developer, user, assistant or tool, and tool_calls instead of function_call."
        )
    listed = written.get("tool_calls") or ()
    calls = [read_call(call["function"]) for call in listed]
    for call, one in zip(listed, calls, strict=True):
        names[call.get("id", "")] = one.name if isinstance(one, ToolCall) else "tool"
    reasoning = written.get("reasoning_content") or written.get("reasoning") or ""
    return Message("assistant", content, tuple(calls), reasoning=reasoning)


def _text(content: Any) -> str:
    """Return the content of a message as one text. `content` is a text, a list of text parts, or
    None.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if other := [part for part in content if part.get("type") not in ("text", "refusal")]:
        raise RequestRefused(f"Got content of type {shown(other[0].get('type'))}, expected text.")
    return "\n".join(part.get("text") or part.get("refusal") or "" for part in content)


def completion(request: CompletionRequest, replies: Sequence[Reply]) -> dict[str, JSON]:
    """Return a chat completion in which each of these replies is a choice."""
    prompt = len(timeline.tokens_of(replies[0])) - len(replies[0].tokens)
    sampled = sum(len(reply.tokens) for reply in replies)
    return {
        "id": f"chatcmpl-{replies[0].seed:x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model,
        "choices": [_choice(number, one, request) for number, one in enumerate(replies)],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
        },
    }


def _choice(number: int, reply: Reply, request: CompletionRequest) -> dict[str, JSON]:
    calls = [call for call in reply.message.calls if isinstance(call, ToolCall)]
    content = client_text(reply.message)
    message: dict[str, JSON] = {"role": "assistant", "content": content or (None if calls else "")}
    if reply.message.reasoning:
        message["reasoning_content"] = reply.message.reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{reply.seed:x}_{place}",
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
                },
            }
            for place, call in enumerate(calls)
        ]
    finish = "length" if reply.message.cut else "tool_calls" if calls else "stop"
    written = {"logprobs": _logprobs(reply) if request.logprobs else None, "finish_reason": finish}
    return {"index": number, "message": message, **written}


def _logprobs(reply: Reply) -> dict[str, JSON]:
    pairs = zip(reply.tokens, reply.logprobs, strict=True)
    empty: dict[str, JSON] = {"bytes": None, "top_logprobs": []}
    return {"content": [{"token": f"token_id:{t}", "logprob": p, **empty} for t, p in pairs]}


def events(completed: Mapping[str, Any], include_usage: bool) -> Iterator[bytes]:
    """Yield the server-sent events of a completion.

    Each choice is sent as one chunk. If `include_usage` is set, a chunk with the token counts
    follows. The last event is `[DONE]`.
    """
    head = {**completed, "object": "chat.completion.chunk", "usage": None}
    for choice in completed["choices"]:
        delta = dict(choice["message"])
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
        kept = {key: value for key, value in choice.items() if key != "message"}
        yield _event({**head, "choices": [{**kept, "delta": delta}]})
    if include_usage:
        yield _event({**head, "choices": [], "usage": completed["usage"]})
    yield b"data: [DONE]\n\n"


def _event(chunk: Mapping[str, JSON]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def models(names: Sequence[str]) -> dict[str, JSON]:
    """Return the response to a request for the list of models."""
    fields: dict[str, JSON] = {"object": "model", "created": 0, "owned_by": "agentfly"}
    return {"object": "list", "data": [{"id": name, **fields} for name in names]}
