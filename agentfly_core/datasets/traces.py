"""Read traces of other programs. A trace is a chat with the token ids that a model read and
sampled.

Three formats are supported: `TrainingTrace` of OpenEnv (openenv 0.10.0, schema_version 1), `Trace`
of verifiers (0.4.0, version 1), and logged chat completions of a server that returns token ids
(vLLM with `return_token_ids`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import NonNegativeInt, ValidationError
from pydantic.dataclasses import dataclass as checked

from agentfly_core.config.mismatch import message_of
from agentfly_core.system.formats.text import fault, shown

OURS = "agentfly"
"""The key under which `agentfly export` stores the whole trajectory of a trace. The key is in the
field `metadata` of the trace's first turn.
"""


@checked(frozen=True)
class RecordedCall:
    """The token ids of a prompt and of a model's reply: `RecordedCall((1, 87), (57, 2), (-0.1,
    -0.2), (True, True))`.

    `prompt` has the tokens that the model read, and `sampled` the tokens of the reply. For each
    sampled token, `logprobs` has the log-probability, and `trained` is True if the token
    contributes to the training loss. Raises ValueError if `sampled`, `logprobs` and `trained` have
    different lengths.
    """

    prompt: tuple[NonNegativeInt, ...]
    sampled: tuple[NonNegativeInt, ...]
    logprobs: tuple[float, ...]
    trained: tuple[bool, ...]

    def __post_init__(self) -> None:
        sizes = [len(self.sampled), len(self.logprobs), len(self.trained)]
        if len({*sizes}) > 1:
            raise ValueError(
                "a model call has {} sampled tokens, {} log-probabilities and {} mask entries; "
                "expected one log-probability and one mask entry per token".format(*sizes)
            )


TracedReply = tuple[Sequence[Any], RecordedCall | None]
"""A pair: a conversation that ends with a reply, as OpenAI messages, and the tokens of the model
call that sampled the reply. The tokens are None if the trace does not contain them.
"""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace: the sampled replies in order, and the tools.

    `ours` is the whole trajectory, as a row of trajectories.parquet, if `agentfly export` wrote the
    trace. For traces of other programs, `ours` is None.
    """

    replies: Sequence[TracedReply]
    tools: Sequence[Any] | None
    ours: Mapping[str, Any] | None = None


def trace_of(row: Mapping[str, Any]) -> Trace | None:
    """Read the trace in a row, or return None if the row does not contain a trace.

    Raises ValueError if the trace is invalid.
    """
    for field, read in FORMATS.items():
        if isinstance(row.get(field), list | dict):
            try:
                return read(row)
            except ValidationError as error:
                first = error.errors()[0]
                what = f" contains {shown(first['input'])}" if first["loc"] else ""
                raise ValueError(f"the field {field!r}{what}: {message_of(first)}") from None
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise ValueError(f"the field {field!r} cannot be read: {fault(error)}") from None
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
    """Read a trace that the library verifiers wrote. The messages of a trace are nodes of a tree.

    Each sampled node is a reply. The prompt of a reply is the path from the root of the tree to the
    parent of this node. Raises ValueError if a node comes before its parent.
    """
    _require_version(row["version"])
    paths, replies = list[tuple[list[Any], list[int]]](), list[TracedReply]()
    for number, node in enumerate(row["nodes"]):
        if (parent := node.get("parent")) not in (None, *range(number)):
            raise ValueError(
                f"node {number} of the trace has the parent {parent!r}, expected an earlier node"
            )
        before, tokens = ([], []) if parent is None else paths[parent]
        messages = [*before, _as_openai(node["message"])]
        if node["sampled"]:
            replies.append((messages, _call_of(tokens, node)))
        # nodes that were not sampled have a path, too, because later nodes may continue them
        paths.append((messages, [*tokens, *node.get("token_ids", [])]))
    return Trace(replies, row["nodes"][0].get("tools"))


def _call_of(before: Sequence[int], node: Mapping[str, Any]) -> RecordedCall | None:
    tokens, mask = node.get("token_ids", []), node.get("mask", [])
    if True not in mask:
        return None
    if len(node["logprobs"]) != (size := mask.count(True)):
        raise ValueError(
            f"a node has {len(node['logprobs'])} log-probabilities and {size} sampled tokens, "
            "expected equal numbers"
        )
    # the node of a reply begins with the header that the chat template writes before the reply
    begin, logprobs = mask.index(True), iter(node["logprobs"])
    filled = tuple(next(logprobs) if trained else 0.0 for trained in mask[begin:])
    return RecordedCall((*before, *tokens[:begin]), tokens[begin:], filled, mask[begin:])


def _as_openai(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = message.get("tool_calls") or ()
    return {**message, "tool_calls": [{"id": c["id"], "function": c} for c in calls]}


def _logged(row: Mapping[str, Any]) -> Trace:
    """Read a log entry with a request to a chat server and the server's response."""
    request, response = row["request"], row["response"]
    # token ids are optional in a log; a log without token ids is read as a chat
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
"""The function that reads a row, for each trace format. The key is a field that only rows of this
format have.
"""


def _require_version(version: Any) -> None:
    if version != 1:
        raise ValueError(f"the trace has version {shown(version)} of its format, expected 1")
