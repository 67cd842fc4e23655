"""Read the chats in a data file as demonstrations for a warm start (supervised fine-tuning)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.datasets.chats import RecordedReply, chat_of, is_reply
from agentfly_core.datasets.columns import TOOLS, DataRow, demonstration_of, renamed, tools_of
from agentfly_core.datasets.file_rows import FIRST, rows
from agentfly_core.datasets.traces import Trace, trace_of
from agentfly_core.records.dataset import BadRow
from agentfly_core.records.trajectory import Observation
from agentfly_core.system.formats.text import counted, sentence


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A row with a chat, or with a trace (a chat with token ids): `ChatRow("chats.jsonl", 17,
    (RecordedReply(...),), None)`.

    - `source`, `number`: the name of the file and the number of the row
    - `replies`: the replies of the chat
    - `tools`: the tools that the row lists, or None for the experiment's tools
    - `closing`: the tools' results after the last reply
    - `ours`: the stored trajectory (see `Trace`) if `agentfly export` wrote the row, otherwise None
    """

    source: str
    number: int
    replies: tuple[RecordedReply, ...]
    tools: tuple[ToolSchema, ...] | None
    closing: tuple[Observation, ...] = ()
    ours: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, source: str, number: int, row: DataRow) -> ChatRow:
        """Read the chat or the trace (a chat with token ids) in a row.

        `source` is the name of the file, and `number` is the number of the row in the file.

        Raises ValueError if the row lacks a valid chat or trace. Also raises ValueError if the chat
        or trace has no reply to train on.
        """
        if (trace := trace_of(row)) is None:
            chat = demonstration_of(row)
            return cls(source, number, chat.replies, tools_of(row), chat.closing)
        replies, tools = (*_replies(trace),), tools_of({TOOLS: trace.tools})
        if not any(reply.trained for reply in replies):
            raise ValueError("it has no reply to train")
        return cls(source, number, replies, tools, ours=trace.ours)


def _replies(trace: Trace) -> Iterator[RecordedReply]:
    for listed, call in trace.replies:
        chat = chat_of(listed)
        if not trace.ours:  # one of our policies may have replied with an empty text
            chat.checked()
        if not is_reply(chat.messages[-1]):
            raise ValueError("a sampled message must have the role 'assistant'")
        yield RecordedReply(chat.messages, call is None or any(call.trained), call)


@dataclass(frozen=True)
class ChatFile:
    """The settings of a warm start (supervised fine-tuning) with a file of chats:
    `ChatFile({"dialogue": "messages"}, tolerate_bad_rows=3)`.

    `columns` maps old to new names of columns. At most `tolerate_bad_rows` unusable rows are
    skipped. More unusable rows are an error.
    """

    columns: dict[str, str] | None = None
    tolerate_bad_rows: Annotated[int, Field(ge=0)] = 0

    def read(self, path: Path) -> Iterator[ChatRow | BadRow]:
        """Yield the chats of a file, and a BadRow for each unusable row.

        Raises ValueError if the file cannot be read.
        """
        for number, row in rows(path):
            try:
                yield ChatRow.of(path.name, number, renamed(row, self.columns or {}))
            except ValueError as error:
                yield BadRow(path.name, number, str(error))

    def require_chats(self, path: Path) -> None:
        """Raise ValueError if a file is missing, or if its first rows do not contain a chat."""
        # the first rows are enough to find a wrong file or column name
        first = [*islice(self.read(path), FIRST)]
        if not any(isinstance(row, ChatRow) for row in first):
            raise ValueError(
                f"{path} has no chat to train on in its first {FIRST} rows: {_listed(first)}"
            )

    def require_few(self, bad: list[BadRow]) -> None:
        """Raise ValueError if there are more unusable rows than `tolerate_bad_rows` allows."""
        if len(bad) > self.tolerate_bad_rows:
            raise ValueError(
                f"{counted(len(bad), 'row')} cannot be used for training (tolerated: "
                f"{self.tolerate_bad_rows}). The first: {_listed(bad)} Repair or remove these "
                "rows; for a warm start you can also raise warm_start.settings.tolerate_bad_rows."
            )


def _listed(rows: list[ChatRow | BadRow] | list[BadRow]) -> str:
    return sentence("; ".join(str(row) for row in rows[:5]) or "it is empty")
