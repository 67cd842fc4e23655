"""Finds the competition of a problem: generated from a seed, or read from a folder in MLE-Dojo's
layout.
"""

import functools
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from agentfly_core.recipes.mle import generated
from agentfly_core.recipes.mle.competitions import Competition, Metric

ANSWERS = "data/private/test_answer.csv"
BOARDS = ("info/private_leaderboard.csv", "info/public_leaderboard.csv")
MLE_DOJO = ("mledojo", "mledojo.metrics", "mledojo.metrics.base")
DESCRIPTIONS = ("info/description.txt", "data/public/description.txt")


def competition_of(facts: Mapping[str, Any]) -> Competition:
    """Return the competition that the facts of a problem describe.

    With a fact `folder`, the competition is read from this folder. Otherwise it is generated from
    the facts `kind` and `seed`.
    """
    if "folder" in facts:
        return read(facts["folder"])
    return generated.competition(facts["kind"], facts["seed"])


@functools.lru_cache(maxsize=16)
def read(folder: str) -> Competition:
    """Read a competition from a folder in MLE-Dojo's layout:

        info/description.txt                   info/private_leaderboard.csv
        utils/metric.py                        data/private/test_answer.csv
        data/public/sample_submission.csv      data/public/... further files

    Run `utils/prepare.py` of the folder before you call this function. The private leaderboard may
    be missing if there is `info/public_leaderboard.csv`. A random half of the test rows is public.
    Each call selects the same half. The code of `utils/metric.py` runs in this process. Raises
    ValueError if a file is missing.
    """
    root = Path(folder)
    public = root / "data/public"
    answers = pd.read_csv(_first(root, ANSWERS))
    ids = sorted(answers.iloc[:, 0].tolist(), key=str)
    chosen = np.random.default_rng(0).permutation(len(ids))[: len(ids) // 2]
    files = {
        str(path.relative_to(public)): path.read_bytes()
        for path in sorted(public.rglob("*"))
        if path.is_file()
    }
    return Competition(
        root.name,
        _first(root, *DESCRIPTIONS).read_text(),
        files,
        answers,
        frozenset(ids[place] for place in chosen),
        _metric(_first(root, "utils/metric.py")),
    )


def leaderboard(folder: Path) -> dict[str, float]:
    """Return the scores of a leaderboard by rank, such as `{"1": 0.93, "2": 0.91}`.

    The private leaderboard is read. If it is missing, the public leaderboard is read.
    """
    table = pd.read_csv(_first(folder, *BOARDS))
    return {str(place): float(score) for place, score in enumerate(table["score"], 1)}


class CompetitionMetrics:
    """A substitute for MLE-Dojo's base class of metrics, so MLE-Dojo need not be installed."""

    def __init__(self, higher_is_better: bool = True) -> None:
        self.higher_is_better = higher_is_better


class InvalidSubmissionError(Exception):
    """A substitute for the error that MLE-Dojo's metrics raise for invalid submissions, so MLE-Dojo
    need not be installed.
    """


def _first(root: Path, *names: str) -> Path:
    for name in names:
        if (root / name).is_file():
            return root / name
    raise ValueError(f"{root} has no {' and no '.join(names)}: run its utils/prepare.py first.")


def _metric(path: Path) -> Metric:
    """Load a metric from a Python file, which must define one subclass of CompetitionMetrics.

    Raises ValueError if the file defines none or several.
    """
    spec = importlib.util.spec_from_file_location(f"mle_metric_{path.parent.parent.name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # the file imports the base class from MLE-Dojo, which need not be installed
    substitutes = {name: ModuleType(name) for name in MLE_DOJO}
    vars(substitutes[MLE_DOJO[-1]]).update(
        CompetitionMetrics=CompetitionMetrics, InvalidSubmissionError=InvalidSubmissionError
    )
    sys.modules.update(substitutes)
    try:
        spec.loader.exec_module(module)
    finally:
        for name in substitutes:
            del sys.modules[name]
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type)]
    own = [k for k in kinds if issubclass(k, CompetitionMetrics) and k is not CompetitionMetrics]
    if len(own) != 1:
        raise ValueError(f"{path} has {len(own)} subclasses of CompetitionMetrics, expected 1.")
    made: Any = own[0]()

    def score(answers: pd.DataFrame, given: pd.DataFrame) -> float:
        made.validate_submission(given, answers)
        return float(made.evaluate(answers, given))

    return Metric(own[0].__name__, made.higher_is_better, score)
