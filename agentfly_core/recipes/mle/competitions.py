"""Machine-learning competitions, and the scores and ranks of submissions to them."""

import io
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from agentfly_core import ToolError

Formula = Literal["code", "paper"]
LARGEST = 1_000_000
"""The largest number of bytes in a submission."""
SAMPLE = "sample_submission.csv"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a competition. `of(answers, predictions)` returns the score of predictions.

    Both arguments are data frames, with the same ids in the same order.
    """

    name: str
    higher_is_better: bool
    of: Callable[[pd.DataFrame, pd.DataFrame], float]

    @property
    def direction(self) -> str:
        return "higher" if self.higher_is_better else "lower"

    def better(self, score: float, other: float) -> bool:
        """Whether `score` is strictly better than `other`."""
        return score > other if self.higher_is_better else score < other


@dataclass(frozen=True, slots=True)
class Competition:
    """A machine-learning competition.

    A competitor sees only the description, the `files` and the score of a submission on the public
    rows. `answers` has the right targets, in the columns of the sample submission: first the id,
    then the targets. `public` contains the ids of the public rows. All other rows are private.
    """

    name: str
    description: str
    files: Mapping[str, bytes]
    answers: pd.DataFrame
    public: frozenset[Any]
    metric: Metric

    def scores(self, submission: bytes) -> tuple[float, float]:
        """Return the scores of a submission (a CSV file) on the public and on the private rows.

        Raises ToolError if the submission is invalid.
        """
        given = self._aligned(submission)
        public = self.answers.iloc[:, 0].isin(self.public).to_numpy()
        try:
            scores = [
                float(self.metric.of(self.answers[rows].copy(), given[rows].copy()))
                for rows in (public, ~public)
            ]
        except Exception as error:  # the message of a folder's metric may contain answers
            raise ToolError(f"The metric refused the values: {type(error).__name__}.") from None
        return scores[0], scores[1]

    def _aligned(self, submission: bytes) -> pd.DataFrame:
        """Return the predictions of a submission, with the rows in the order of the answers.

        Raises ToolError if the submission is invalid.
        """
        key, *targets = self.answers.columns
        given, expected = _read(submission, ",".join([key, *targets])), self.answers[key]
        if sorted(map(str, given[key])) != sorted(map(str, expected)):
            raise ToolError(
                f"submission.csv has {len(given)} rows, expected {len(expected)}: each {key} of "
                f"{SAMPLE} once."
            )
        given = given.set_index(given[key].astype(str)).loc[list(map(str, expected))]
        for target in targets:
            _check(target, given[target], self.answers[target])
        return given.reset_index(drop=True)


def _read(submission: bytes, header: str) -> pd.DataFrame:
    if len(submission) > LARGEST:
        raise ToolError(f"submission.csv has {len(submission)} bytes, expected at most {LARGEST}.")
    # checked before pandas reads the file, because a million columns would take minutes
    if submission.partition(b"\n")[0].decode(errors="replace").strip() != header:
        raise ToolError(f"The first line of submission.csv must be {header}.")
    try:
        return pd.read_csv(io.BytesIO(submission), index_col=False)
    except ValueError as error:
        raise ToolError(f"submission.csv is not readable: {error}") from None


def _check(name: str, given: "pd.Series[Any]", expected: "pd.Series[Any]") -> None:
    """Check a column of a submission against the same column of the answers (`expected`).

    Raises ToolError for missing values. If `expected` has numbers, also raises ToolError for texts
    and infinite numbers in the submission.
    """
    if given.isna().any():
        raise ToolError(f"The column {name} has missing values.")
    if pd.api.types.is_numeric_dtype(expected):
        if not pd.api.types.is_numeric_dtype(given):
            raise ToolError(f"The column {name} must have numbers only.")
        if not np.isfinite(given.to_numpy(float)).all():
            raise ToolError(f"The column {name} has infinite values.")


def human_rank(
    board: Iterable[float], score: float, metric: Metric, formula: Formula = "code"
) -> float:
    """Return the HumanRank of a score among the N finite scores of a leaderboard.

    HumanRank is about 1 for the best and 0 for the worst score. The place p is 1 plus the number of
    better scores on the leaderboard `board`. With `formula="code"`, HumanRank is (N - p + 1) / N,
    as in MLE-Dojo's code. With `formula="paper"`, HumanRank is max(0, 1 - p / N). The
    result is 0 for a score that is not finite, and for an empty leaderboard.
    """
    others = [other for other in board if math.isfinite(other)]
    if not math.isfinite(score) or not others:
        return 0.0
    place = 1 + sum(metric.better(other, score) for other in others)
    above = place - 1 if formula == "code" else place
    return max(0.0, 1 - above / len(others))
