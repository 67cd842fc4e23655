"""Chats in files."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.inference.endpoints.chat import ChatRequest
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.stages.chats import read_chats
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.store.artifact import Artifact


def json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def chats_read(of: Experiment) -> Artifact:
    """The chats of an experiment's warm start, read as demonstrations."""
    assert of.settings.warm_start
    model, data = inputs.base_model(of), inputs.dataset(of)
    target = StageKeys(of.settings).demonstrations(model, data, of.frozen)
    return read_chats(of.store, of.settings.warm_start, target, of.whole, model, data)


def chat_of_episode(trajectory: Trajectory) -> dict[str, Any]:
    """The messages of an episode in OpenAI's format."""
    turns = trajectory.turns
    messages = [item for turn in turns for item in (*turn.read, turn.reply)]
    return {"messages": ChatRequest((*messages, *trajectory.closing)).body()["messages"]}
