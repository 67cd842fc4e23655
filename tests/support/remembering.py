"""An agent that reads its memory, and the function that fills it with a note a step."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentfly_core import Ending, Episode, Message, Scored, Trajectory

NOTES = "notes.json"
READER = "tests.support.remembering:reader"
REMEMBER = "tests.support.remembering:remember"


async def reader(episode: Episode) -> Ending:
    """Reply once to the prompt and the number of notes."""
    await episode.reply(Message("user", f"{len(notes_in(episode.memory))}"), *episode.opening)
    return Ending.NO_TOOL_CALLS


def remember(
    before: Path,
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    seed: int,
    folder: Path,
) -> None:
    """Add a note: the seed, and the reward of each episode by problem and chain."""
    pairs = zip(trajectories, scores, strict=True)
    rewards = [[one.problem.id, one.chain, score.reward] for one, score in pairs]
    notes = [*notes_in(before), {"seed": seed, "rewards": rewards}]
    (folder / NOTES).write_text(json.dumps(notes))


def notes_in(memory: Path) -> list[dict[str, Any]]:
    """The notes of a memory, a note a step."""
    file = memory / NOTES
    notes: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return notes
