"""Chats in files."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentfly_core.inference.endpoints.chat import ChatRequest
from agentfly_core.records.trajectory import Trajectory


def json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def chat_of_episode(trajectory: Trajectory) -> dict[str, Any]:
    """The messages of an episode in OpenAI's format."""
    turns = trajectory.turns
    messages = [item for turn in turns for item in (*turn.read, turn.reply)]
    return {"messages": ChatRequest((*messages, *trajectory.closing)).body()["messages"]}
