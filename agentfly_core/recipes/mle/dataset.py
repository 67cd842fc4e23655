"""Machine-learning competitions as problems. The facts of a problem contain a leaderboard."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentfly_core import Problem, generated
from agentfly_core.recipes.mle import folders
from agentfly_core.recipes.mle.competitions import Formula
from agentfly_core.recipes.mle.generated import KINDS, competition
from agentfly_core.recipes.mle.leaderboard import leaderboard


@generated
def competitions(
    seed: int,
    train: int,
    validation: int,
    test: int,
    kinds: Sequence[str] = tuple(KINDS),
    formula: Formula = "code",
) -> dict[str, list[Problem]]:
    """Make competitions for each split. Problem i uses `kinds[i % len(kinds)]`. An example is

        Problem("linear-3000000", "Predict the column target of test.csv ...", {"kind": "linear",
            "seed": 3000000, "formula": "code", "leaderboard": {"forest": 1.204, ...}})

    The leaderboard of a competition has the scores of twelve baseline models. This function fits
    the baseline models, in about a second per competition. Some kinds, such as "wine", take their
    rows from a data set of scikit-learn. Competitions of such a kind share rows, even if they are
    in different splits. Raises ValueError for an unknown kind, and if `kinds` is empty.
    """
    if not kinds or not {*kinds} <= KINDS.keys():
        raise ValueError(f"data.kinds: got {[*kinds]}, expected some of {', '.join(KINDS)}.")
    sizes = {"train": train, "validation": validation, "test": test}
    first, splits = seed * 1_000_000, dict[str, list[Problem]]()
    for split, size in sizes.items():
        splits[split] = [_problem(kinds[n % len(kinds)], first + n, formula) for n in range(size)]
        first += size
    return splits


def dojo(
    seed: int, train: int, validation: int, test: int, folder: Path, formula: Formula = "code"
) -> dict[str, list[Problem]]:
    """Make problems for each split from the competitions in `folder`.

    A competition is a subfolder in MLE-Dojo's layout, see `folders.read`. The competitions are
    sorted by name. The first `train` competitions are for training, the next `validation`
    competitions for validation, and the next `test` competitions for the test. Raises ValueError if
    the folder has too few competitions.
    """
    roots = sorted(path.parent.resolve() for path in folder.glob("*/utils"))
    sizes = {"train": train, "validation": validation, "test": test}
    if len(roots) < (needed := sum(sizes.values())):
        raise ValueError(
            f"{folder} has {len(roots)} competitions, but the splits need {needed}. Lower "
            "data.train, data.validation or data.test."
        )
    rest = iter(roots)
    return {
        split: [_folder(next(rest), formula) for _ in range(size)] for split, size in sizes.items()
    }


def _problem(kind: str, seed: int, formula: Formula) -> Problem:
    task = competition(kind, seed)
    facts: dict[str, Any] = {"kind": kind, "seed": seed, "formula": formula}
    return Problem(task.name, task.description, {**facts, "leaderboard": leaderboard(task)})


def _folder(root: Path, formula: Formula) -> Problem:
    task = folders.read(str(root))
    facts: dict[str, Any] = {"kind": "folder", "folder": str(root), "formula": formula}
    prompt = f"{task.description}\n\nUse the tools to submit predictions."
    return Problem(task.name, prompt, {**facts, "leaderboard": folders.leaderboard(root)})
