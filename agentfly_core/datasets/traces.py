"""Read traces of other programs: chats with the token ids that a server read and sampled.

Supported are OpenEnv's `TrainingTrace` (openenv 0.10.0, schema_version 1), verifiers' `Trace`
(0.4.0, version 1), and logged chat completions of servers that return token ids (vLLM's
`return_token_ids`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import NonNegativeInt, ValidationError
from pydantic.dataclasses import dataclass as checked

from agentfly_core.config.mismatch import message_of
from agentfly_core.system.formats.text import fault, shown

OURS = "agentfly"
"""Key in the first turn's metadata for the trajectory row that `agentfly export` adds."""


@checked(frozen=True)
class RecordedCall:
    """Tokens of a model call: `RecordedCall((1, 87), (57, 2), (-0.1, -0.2), (True, True))`, where
    `trained` marks the sampled tokens that are trained.
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
                "mask, expected equal numbers".format(*sizes)
            )


TracedReply = tuple[Sequence[Any], RecordedCall | None]
"""A prompt and its reply as a list of OpenAI's messages, and the tokens if they were recorded."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The sampled replies of a trace in order, and its tools.

    `ours` is the trajectory row that `agentfly export` added; other traces have None.
    """

    replies: Sequence[TracedReply]
    tools: Sequence[Any] | None
    ours: Mapping[str, Any] | None = None


def trace_of(row: Mapping[str, Any]) -> Trace | None:
    """Read the trace in a row; None for a row of another kind.

    Raises ValueError for a faulty trace.
    """
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
    replies, turns = list[TracedReply](), row["turns"]
    for turn in turns:
        prompt, sampled = turn["prompt_token_ids"], turn["completion_token_ids"]
        mask = turn["loss_mask"][len(prompt) :]
        call = RecordedCall(prompt, sampled, turn["per_token_logps"], mask)
        message = turn["response"]["choices"][0]["message"]
        replies.append(([*turn["request"]["messages"], message], call))
    ours = turns[0].get("metadata", {}).get(OURS)
    return Trace(replies, turns[-1]["request"].get("tools"), ours)


def _verifiers(row: Mapping[str, Any]) -> Trace:
    """Read the sampled nodes in order.

    The prompt of a node is the path from a root to its parent.
    """
    _require_version(row["version"])
    paths, replies = list[tuple[list[Any], list[int]]](), list[TracedReply]()
    for number, node in enumerate(row["nodes"]):
        if (parent := node.get("parent")) not in (None, *range(number)):
            raise ValueError(
                f"its node {number} has the parent {parent!r}, expected an earlier node"
            )
        before, tokens = ([], []) if parent is None else paths[parent]
        messages = [*before, _as_openai(node["message"])]
        if node["sampled"]:
            replies.append((messages, _call_of(tokens, node)))
        # also for nodes that were not sampled, because later nodes continue them
        paths.append((messages, [*tokens, *node.get("token_ids", [])]))
    return Trace(replies, row["nodes"][0].get("tools"))


def _call_of(before: Sequence[int], node: Mapping[str, Any]) -> RecordedCall | None:
    tokens, mask = node.get("token_ids", []), node.get("mask", [])
    if True not in mask:
        return None
    # a reply's node begins with the header that the template writes before the reply
    begin, logprobs = mask.index(True), iter(node["logprobs"])
    filled = tuple(next(logprobs) if trained else 0.0 for trained in mask[begin:])
    return RecordedCall((*before, *tokens[:begin]), tokens[begin:], filled, mask[begin:])


def _as_openai(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = message.get("tool_calls") or ()
    return {**message, "tool_calls": [{"id": c["id"], "function": c} for c in calls]}


def _logged(row: Mapping[str, Any]) -> Trace:
    """Read a request to a chat server and its response."""
    request, response = row["request"], row["response"]
    # ids are optional in a log; a log without ids is read as a chat
    prompt, choice = response.get("prompt_token_ids"), response["choices"][0]
    call: RecordedCall | None = None
    if prompt and choice.get("token_ids") and choice.get("logprobs"):
        sampled = choice["token_ids"]
        logprobs = tuple(one["logprob"] for one in choice["logprobs"]["content"])
        call = RecordedCall(prompt, sampled, logprobs, (True,) * len(sampled))
    return Trace([([*request["messages"], choice["message"]], call)], request.get("tools"))


FORMATS: Mapping[str, Callable[[Mapping[str, Any]], Trace]] = {
    "turns": _openenv,
    "nodes": _verifiers,
    "request": _logged,
}
"""The reader of each format, by a field that only rows of this format have."""


def _require_version(version: Any) -> None:
    if version != 1:
        raise ValueError(f"the trace has version {shown(version)} of its format, expected 1")
