"""The memory of a run. It contains the blueprints of buildings that were completed."""

import json
from collections.abc import Sequence
from pathlib import Path

from agentfly_core import Scored, Trajectory
from agentfly_core.tools.search import Index, Row

FILE = "blueprints.jsonl"
NOTHING = "Nothing is remembered."
INTERPRETER = "interpreter"


class Shelf:
    """The blueprints of complete buildings, read from a memory folder.

    Each element of `rows` has an order (the prompt that describes a building) and the order's
    blueprint. If no building was complete so far, `rows` is empty.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / FILE
        text = file.read_text() if file.exists() else ""
        self.rows: list[Row] = [json.loads(line) for line in text.splitlines()]

    def recall(self, query: str) -> str:
        """Recall the order and the blueprint of an earlier building that was complete.

        Args:
            query: words that describe the building
        """
        ranked = Index(self.rows).ranked(query) if self.rows else []
        return "{text}\n{blueprint}".format(**ranked[0]) if ranked else NOTHING


def remember(
    before: Path,
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    seed: int,
    folder: Path,
) -> None:
    """Write the memory (blueprints of complete buildings) for the next step to `folder`.

    The new memory has the rows of the previous memory in the folder `before`, and new rows. Each
    episode in which the reward `building` is 1 adds a row with its prompt and blueprint. The new
    memory has only one row for each problem: a later row replaces an earlier row.
    """
    rows = {row["id"]: row for row in Shelf(before).rows}
    read = {one.episode: one for one in trajectories if one.speaker == INTERPRETER}
    for one, score in zip(trajectories, scores, strict=True):
        if one.answered is not None and score.rewards.get("building") == 1:
            interpreted = read[one.episode].turns[0].reply.content if one.episode in read else ""
            row = {"title": interpreted, "text": one.problem.prompt, "blueprint": one.answered}
            rows[one.problem.id] = {"id": one.problem.id, **row}
    lines = [json.dumps(row) + "\n" for _, row in sorted(rows.items())]
    (folder / FILE).write_text("".join(lines))
