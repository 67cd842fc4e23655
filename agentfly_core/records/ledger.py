"""The ledger: the problems of each step and their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from agentfly_core.records.parquet import read_column
from agentfly_core.records.speakers import Earned, any_spread, by_episode, earned_by_speaker
from agentfly_core.records.trajectory import Scored, Trajectory

if TYPE_CHECKING:
    import pandas as pd

FILE = "ledger.parquet"
PassRates = Mapping[str, tuple[int, int]]
"""Numbers of solved and of scored episodes by kind of problem: `{"amount": (12, 16)}`."""
ProblemOutcome = Literal["used", "zero_spread", "unscored"]


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The outcome of a problem in a step: `LedgerRow(7, "single", "add-41-58", 8, 8, 0.625,
    "used")`.

    `reward` is the mean over scored episodes. The outcome `zero_spread` means that all episodes of
    the problem have equal rewards, for each speaker. `kind` and `solved` are for a curriculum: pass
    rates are computed per kind of problem, and `solved` counts the scored episodes that reached the
    goal.
    """

    step: int
    task: str
    problem: str
    episodes: int
    scored: int
    reward: float | None
    outcome: ProblemOutcome
    kind: str | None = None
    solved: int | None = None


def ledger(
    step: int, trajectories: Sequence[Trajectory], scores: Sequence[Scored]
) -> list[LedgerRow]:
    """Make a row for each problem of a step, sorted by problem id."""
    by_id = {score.trajectory_id: score for score in scores}
    problems: dict[tuple[str, str], list[Earned | None]] = {}
    for episode in by_episode(trajectories):
        problem = episode[0].problem
        earned = earned_by_speaker(episode, by_id)
        problems.setdefault((problem.id, problem.task), []).append(earned)
    rows = []
    for (name, task), episodes in sorted(problems.items()):
        scored = [one for one in episodes if one is not None]
        mean = sum(fmean(one.values()) for one in scored) / len(scored) if scored else None
        outcome: ProblemOutcome = "used"
        if not scored:
            outcome = "unscored"
        elif not any_spread(scored):
            outcome = "zero_spread"
        rows.append(LedgerRow(step, task, name, len(episodes), len(scored), mean, outcome))
    return rows


def write(folder: Path, rows: Sequence[LedgerRow]) -> None:
    """Write a step's rows into a folder."""
    import pandas as pd  # imported here, because it takes half a second

    pd.DataFrame([asdict(row) for row in rows]).to_parquet(folder / FILE)


def pass_rates(folder: Path) -> PassRates:
    """Count solved and scored episodes of a step by kind.

    Raises ValueError if the step had no curriculum.
    """
    rows = _read(folder)
    if rows["kind"].isna().any():
        raise ValueError(
            "rollout.curriculum: an earlier step ran without a curriculum, so its pass rates are "
            "unknown. Remove rollout.curriculum, or fork from the start of the run."
        )
    sums = rows.groupby("kind")[["solved", "scored"]].sum().astype(int)
    return {kind: (solved, scored) for kind, solved, scored in sums.itertuples()}


def together(steps: Iterable[PassRates]) -> PassRates:
    """Add up the counts of several steps; kinds are in alphabetical order."""
    solved: Counter[str] = Counter()
    scored: Counter[str] = Counter()
    for rates in steps:
        for kind, (some, of) in rates.items():
            solved[kind] += some
            scored[kind] += of
    return {kind: (solved[kind], scored[kind]) for kind in sorted(scored)}


def used(folder: Path) -> Counter[str]:
    """Count by task the problems of a scored step with the outcome `used`: `{"single": 5}`."""
    rows = _read(folder)
    return Counter(rows["task"][rows["outcome"] == "used"])


def problems(folder: Path) -> Counter[str]:
    """Count by task the problems that a scored step played: `{"single": 64}`."""
    return Counter(read_column(folder / FILE, "task"))


def joined(folders: Sequence[Path]) -> pd.DataFrame:
    """Join the rows of many steps in one table."""
    import pandas as pd

    rows: pd.DataFrame = pd.concat(map(_read, folders), ignore_index=True)
    return rows


def _read(folder: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(folder / FILE)
