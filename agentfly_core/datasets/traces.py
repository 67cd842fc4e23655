"""Traces of other programs: chats with the token ids that a server read and sampled.

OpenEnv's `TrainingTrace` (openenv 0.10.0, schema_version 1), `Trace` of verifiers (0.4.0, version
1), and logged chat completions of servers that return token ids (vLLM's `return_token_ids`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import NonNegativeInt, ValidationError
from pydantic.dataclasses import dataclass as checked

from agentfly_core.config.mismatch import message_of
from agentfly_core.system.formats.text import fault, shown

OURS = "agentfly"
"""Key of the first turn's metadata with the row of our own record."""


@checked(frozen=True)
class RecordedCall:
    """Tokens of a model call: `RecordedCall((1, 87), (57, 2), (-0.1, -0.2), (True, True))`, with
    whether each sampled token is trained.
    """

    prompt: tuple[NonNegativeInt, ...]
    sampled: tuple[NonNegativeInt, ...]
    logprobs: tuple[float, ...]
    trained: tuple[bool, ...]

    def __post_init__(self) -> None:
        sizes = [len(self.sampled), len(self.logprobs), len(self.trained)]
        if len({*sizes}) > 1:
            raise ValueError(
                "a call has {} sampled tokens, {} log-probabilities and {} entries of its "
                "mask".format(*sizes)
            )


@dataclass(frozen=True, slots=True)
class Trace:
    """Messages as OpenAI lists them, the calls of the last replies, and the row of our own record
    in a trace that we exported.
    """

    messages: Sequence[Any]
    tools: Sequence[Any] | None
    calls: tuple[RecordedCall, ...]
    ours: Mapping[str, Any] | None = None


def trace_of(row: Mapping[str, Any]) -> Trace | None:
    """The trace in a row, None for a row of another kind; raises ValueError for a fault."""
    for field, read in FORMATS.items():
        if isinstance(row.get(field), list | dict):
            try:
                return read(row)
            except ValidationError as error:
                first = error.errors()[0]
                what = f" {shown(first['input'])}" if first["loc"] else ""
                raise ValueError(f"its {field!r}{what}: {message_of(first)}") from None
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise ValueError(f"its {field!r} cannot be read: {fault(error)}") from None
    return None


def _openenv(row: Mapping[str, Any]) -> Trace:
    _require_version(row["schema_version"])
    calls = list[RecordedCall]()
    for turn in row["turns"]:
        prompt, sampled = turn["prompt_token_ids"], turn["completion_token_ids"]
        mask = turn["loss_mask"][len(prompt) :]
        calls.append(RecordedCall(prompt, sampled, turn["per_token_logps"], mask))
    whole, ours = _logged(row["turns"][-1]), row["turns"][0].get("metadata", {}).get(OURS)
    messages = _marked(whole.messages, [any(call.trained) for call in calls])
    if ours is None and sum(map(_is_reply, messages)) < len(calls):
        raise ValueError("its last turn has fewer replies than it has turns")
    return Trace(messages, whole.tools, tuple(calls), ours)


def _verifiers(row: Mapping[str, Any]) -> Trace:
    _require_version(row["version"])
    tokens, calls, nodes = list[int](), list[RecordedCall](), row["nodes"]
    if [node.get("parent") for node in nodes] != [None, *range(len(nodes) - 1)]:
        raise ValueError("its nodes are several conversations, expected one")
    for node in nodes:
        own, mask = node.get("token_ids", []), node.get("mask", [])
        if node["sampled"] and True in mask:
            begin, logprobs = mask.index(True), iter(node["logprobs"])
            filled = tuple(next(logprobs) if trained else 0.0 for trained in mask[begin:])
            prompt = (*tokens, *own[:begin])
            calls.append(RecordedCall(prompt, own[begin:], filled, mask[begin:]))
        tokens += own
    messages = [
        {**one, "tool_calls": [{"id": c["id"], "function": c} for c in one["tool_calls"]]}
        if one.get("tool_calls")
        else one
        for one in (node["message"] for node in nodes)
    ]
    trained = [node["sampled"] for node in nodes if _is_reply(node["message"])]
    return Trace(_marked(messages, trained), nodes[0].get("tools"), tuple(calls))


def _logged(row: Mapping[str, Any]) -> Trace:
    """A request to a chat server and its response; its earlier replies are not trained."""
    request, response = row["request"], row["response"]
    prompt, choice = response.get("prompt_token_ids"), response["choices"][0]
    calls = list[RecordedCall]()
    if prompt and choice.get("token_ids") and choice.get("logprobs"):
        sampled = choice["token_ids"]
        logprobs = tuple(one["logprob"] for one in choice["logprobs"]["content"])
        calls = [RecordedCall(prompt, sampled, logprobs, (True,) * len(sampled))]
    messages = _marked([*request["messages"], choice["message"]], [True])
    return Trace(messages, request.get("tools"), tuple(calls))


FORMATS: Mapping[str, Callable[[Mapping[str, Any]], Trace]] = {
    "turns": _openenv,
    "nodes": _verifiers,
    "request": _logged,
}
"""Formats by a field that only their rows have."""


def _require_version(version: Any) -> None:
    if version != 1:
        raise ValueError(f"it has version {shown(version)} of its format, expected 1")


def _is_reply(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant"


def _marked(messages: Sequence[Any], trained: Sequence[bool]) -> list[Any]:
    """Messages with `train` at the last replies; earlier replies are not trained."""
    places = [place for place, message in enumerate(messages) if _is_reply(message)]
    marks = dict(zip(reversed(places), reversed(trained), strict=False))
    return [
        {**message, "train": marks.get(place, False)} if place in places else message
        for place, message in enumerate(messages)
    ]
