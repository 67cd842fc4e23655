"""The problems of several tasks as one dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentfly_core.config.evaluation import SPLITS
from agentfly_core.config.import_path import at
from agentfly_core.config.parts import Data
from agentfly_core.records.dataset import Rows, build, problems_of
from agentfly_core.records.trajectory import Problem, of_task


def mixture(
    seed: int, train: int, validation: int, test: int, tasks: Mapping[str, Mapping[str, Any]]
) -> dict[str, Rows]:
    """The splits of all tasks, task by task, from their sections `data`; ids are `shop/2-red-cup`.

    Raises ValueError for unusable data, with its task.
    """
    splits: dict[str, Rows] = {split: [] for split in SPLITS}
    for name, settings in tasks.items():
        with at(f"tasks.{name}.data"):
            data = Data.model_validate(settings)
            built = build(data, seed if data.seed is None else data.seed)
            problems_of(data, built)
        for split, rows in built.items():
            splits[split] += [
                of_task(row, name) if isinstance(row, Problem) else row for row in rows
            ]
    return splits
