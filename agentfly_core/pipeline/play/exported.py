"""Export episodes as chats, and as traces with token ids, for other programs."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentfly_core.datasets.traces import OURS
from agentfly_core.inference.endpoints.chat import ChatRequest
from agentfly_core.pipeline.recorded_chats import calls_of
from agentfly_core.records.parquet import trajectory_row
from agentfly_core.records.trajectory import BadCall, Message, Observation, Trajectory, Turn

CHATS, TRACES = "chats.jsonl", "traces.jsonl"


def export(trajectories: Iterable[Trajectory], speaker: str, folder: Path) -> dict[str, int]:
    """Write the replies of a speaker into a new folder.

    If `speaker` is empty, these are the replies of the trained policy. The constants CHATS and
    TRACES are the names of two files in the folder. CHATS contains a chat for each conversation. A
    warm start can read this file. TRACES contains a `TrainingTrace` (a format of OpenEnv) for each
    trajectory. The metadata of a trace contain the trajectory in AgentFly's own format.

    Returns the number of rows in each file. The key "left out" contains the number of skipped rows.
    Rows with a NUL character are skipped. Chats with a tool call that could not be parsed are
    skipped, too. The key "without token ids" contains the number of trajectories in which at least
    one reply lacks token ids, for example because a chat service (external model API) replies for
    an untrained role. These trajectories have no trace. Raises ValueError if the folder exists, or
    if no episode has a reply of the speaker.
    """
    mine = [t for t in trajectories if t.turns]
    mine = [t for t in mine if (t.speaker == speaker if speaker else not t.policy)]
    if not mine:
        who = f"the speaker {speaker!r}" if speaker else "the trained policy"
        raise ValueError(f"No episode has a reply of {who}. Choose another --speaker.")
    if folder.exists():
        raise ValueError(f"The folder {folder} already exists; remove it, or name a new folder.")
    conversations = [(t, one) for t in mine for one in conversations_of(t)]
    chats = [chat_row(t, one) for t, one in conversations if not any(map(_is_bad, one.turns))]
    traces = [trace_row(t) for t in mine if all(turn.sampled for turn in t.turns)]
    folder.mkdir(parents=True)
    counts = {
        "left out": len(conversations) - len(chats),
        "without token ids": len(mine) - len(traces),
    }
    for name, rows in ((CHATS, chats), (TRACES, traces)):
        lines = [json.dumps(row) + "\n" for row in rows]
        # a model can sample a NUL character, but strict JSON readers refuse it
        readable = [line for line in lines if "\\u0000" not in line]
        (folder / name).write_text("".join(readable), encoding="utf-8")
        counts[name] = len(readable)
        counts["left out"] += len(lines) - len(readable)
    return counts


def _is_bad(turn: Turn) -> bool:
    return any(isinstance(call, BadCall) for call in turn.reply.calls)


class RecordedConversation(NamedTuple):
    """The turns of a conversation.

    The first `shared` turns also belong to a conversation that was exported earlier. The replies in
    these turns are exported with `"train": false`.
    """

    turns: tuple[Turn, ...]
    shared: int


def conversations_of(trajectory: Trajectory) -> list[RecordedConversation]:
    """Return the conversations of a trajectory, in the order of their last turns.

    If a conversation branches off from another conversation, its turns include the turns before the
    branch.
    """
    histories, conversations = histories_of(trajectory), list[RecordedConversation]()
    continued, exported = {path[-1] for path in histories if path}, set[int]()
    for last in (number for number in range(len(histories)) if number not in continued):
        path = (*histories[last], last)
        turns = tuple(trajectory.turns[number] for number in path)
        conversations.append(RecordedConversation(turns, len(exported.intersection(path))))
        exported.update(path)
    return conversations


def histories_of(trajectory: Trajectory) -> list[tuple[int, ...]]:
    """Return the history of each turn: the indices of earlier turns in the same conversation."""
    histories, last = list[tuple[int, ...]](), dict[int, int]()  # last turns by context
    for number, turn in enumerate(trajectory.turns):
        before = last.get(turn.context, turn.continues)
        histories.append(() if before is None else (*histories[before], before))
        last[turn.context] = number
    return histories


def chat_row(trajectory: Trajectory, conversation: RecordedConversation) -> dict[str, Any]:
    """Convert a conversation to a row with messages in OpenAI's format.

    Replies that are not trained get `"train": false`.
    """
    turns, shared = conversation
    items = [item for turn in turns for item in (*turn.read, turn.reply)]
    closing = trajectory.closing if turns[-1] is trajectory.turns[-1] else ()
    messages, names = _messages([*items, *closing]), trajectory.problem.tools
    replies = [message for message in messages if message["role"] == "assistant"]
    # earlier replies are part of the problem's messages, so they are not turns
    for place, message in enumerate(replies[-len(turns) :]):
        spans = turns[place].sampled
        trained = any(span.trained for span in spans) and trajectory.trains(turns[place])
        if place < shared or not trained:
            message["train"] = False
    return {"messages": messages, **({} if names is None else {"tools": [*names]})}


def trace_row(trajectory: Trajectory) -> dict[str, Any]:
    """Convert a trajectory to a `TrainingTrace` of OpenEnv."""
    rows, names = list[dict[str, Any]](), trajectory.problem.tools
    turns, histories = trajectory.turns, histories_of(trajectory)
    for turn, call, earlier in zip(turns, calls_of(trajectory), histories, strict=True):
        before = [item for n in earlier for item in (*turns[n].read, turns[n].reply)]
        request = {"messages": _messages([*before, *turn.read])}
        (message,) = _messages([turn.reply])
        rows.append(
            {
                "node_id": f"{trajectory.id}-{len(rows)}",
                "prompt_token_ids": call.prompt,
                "completion_token_ids": call.sampled,
                "per_token_logps": call.logprobs,
                "loss_mask": [0] * len(call.prompt) + [int(bit) for bit in call.trained],
                "request": request if names is None else {**request, "tools": [*names]},
                "response": {"choices": [{"message": message}]},
                # only in the first turn, because the trajectory contains all turns
                "metadata": {} if rows else {OURS: trajectory_row(trajectory)},
            }
        )
    return {"schema_version": 1, "turns": rows}


def _messages(items: Sequence[Message | Observation]) -> list[dict[str, Any]]:
    """Convert messages to OpenAI's format, including their reasoning."""
    written: Any = ChatRequest(tuple(items)).body()["messages"]
    reasoning = [getattr(item, "reasoning", "") for item in items]
    pairs = zip(written, reasoning, strict=True)
    return [one | ({"reasoning_content": text} if text else {}) for one, text in pairs]
