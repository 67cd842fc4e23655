"""Join the problems of several tasks in one dataset (a mixture)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from agentfly_core.config.episodes import SPLITS
from agentfly_core.config.import_path import at
from agentfly_core.config.parts import Data
from agentfly_core.records.dataset import BadRow, Rows, build, content, problems_of
from agentfly_core.records.trajectory import Problem, of_task


def mixture(
    seed: int, train: int, validation: int, test: int, tasks: Mapping[str, Mapping[str, Any]]
) -> dict[str, Rows]:
    """Make splits with the problems of all tasks, one task after the other.

    `tasks` maps the name of each task to the task's section `data`. The id of a problem begins with
    the task's name: `shop/2-red-cup`. Raises ValueError if the data of a task is unusable; the
    message names the task. Also raises ValueError if a training problem of a task is a validation
    or test problem of another task.
    """
    splits: dict[str, Rows] = {split: [] for split in SPLITS}
    for name, settings in tasks.items():
        with at(f"tasks.{name}.data"):
            data = Data.model_validate(settings)
            built = build(data, seed if data.seed is None else data.seed)
            # checked for each task, because an error must name the task
            problems_of(data, built)
        for split, rows in built.items():
            splits[split] += [
                of_task(row, name) if isinstance(row, Problem) else row for row in rows
            ]
    _require_disjoint(splits)
    return splits


def _require_disjoint(splits: Mapping[str, Sequence[Problem | BadRow]]) -> None:
    """Raise ValueError if a training problem is a validation or test problem of another task."""
    trained = defaultdict[str, dict[str, str]](dict)
    for split, rows in splits.items():
        for problem in rows:
            if not isinstance(problem, Problem):
                continue
            same = trained[content(problem)]
            if split == "train":
                same[problem.task] = problem.id
            elif others := [of for task, of in same.items() if task != problem.task]:
                raise ValueError(
                    f"The {split} problem {problem.id!r} is the same as the training problem "
                    f"{others[0]!r} of another task. Give tasks with the same dataset equal split "
                    "sizes and the same seed. Or give them settings that make different problems."
                )
