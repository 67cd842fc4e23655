"""The ledger: a table of the problems of each step, with their outcomes."""

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
"""For each kind of problem, how many episodes were solved and how many were scored:
`{"amount": (12, 16)}`.
"""
ProblemOutcome = Literal["used", "zero_spread", "unscored"]


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The outcome of a problem in a training step.

    `LedgerRow(7, "single", "add-41-58", episodes=8, scored=8, reward=0.625, outcome="used")`

    - `episodes`: the number of the problem's episodes
    - `scored`: the number of these episodes that have a reward
    - `reward`: the mean reward of the scored episodes
    - `outcome`: whether the problem can train the policy. It is `unscored` if all episodes lack a
      reward. It is `zero_spread` if each speaker has the same reward in all scored episodes.
      Otherwise it is `used`.
    - `kind`: with a curriculum, the kind of the problem. A pass rate is computed for each kind.
    - `solved`: with a curriculum, the number of the problem's solved episodes
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
    """Return the outcome of each problem of a step, sorted by the problem's id."""
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
    """Write the outcomes of a step's problems to the file `ledger.parquet` in a folder."""
    import pandas as pd  # imported here, because it takes half a second

    pd.DataFrame([asdict(row) for row in rows]).to_parquet(folder / FILE)


def pass_rates(folder: Path) -> PassRates:
    """Count the solved and the scored episodes of a training step for each kind of problem.

    `folder` contains the file `ledger.parquet` of the step. Raises ValueError if the step had no
    curriculum, because kinds are recorded only with a curriculum.
    """
    rows = _read(folder)
    if rows["kind"].isna().any():
        raise ValueError(
            "rollout.curriculum: an earlier step of the run had no curriculum, so the pass rates "
            "of that step are unknown. Remove rollout.curriculum, or fork from the start of the "
            "run."
        )
    sums = rows.groupby("kind")[["solved", "scored"]].sum().astype(int)
    return {kind: (solved, scored) for kind, solved, scored in sums.itertuples()}


def together(steps: Iterable[PassRates]) -> PassRates:
    """Add up the counts of solved and scored episodes of several steps, per kind of problem.

    The result is sorted by the names of the kinds.
    """
    solved: Counter[str] = Counter()
    scored: Counter[str] = Counter()
    for rates in steps:
        for kind, (some, of) in rates.items():
            solved[kind] += some
            scored[kind] += of
    return {kind: (solved[kind], scored[kind]) for kind in sorted(scored)}


def used(folder: Path) -> Counter[str]:
    """Count, for each task, the problems of a step that can train the policy: `{"single": 5}`.

    A problem can train the policy if at least one speaker has different rewards in different
    episodes. The problem's `LedgerRow.outcome` is then "used". `folder` contains the file
    `ledger.parquet` of the step.
    """
    rows = _read(folder)
    return Counter(rows["task"][rows["outcome"] == "used"])


def problems(folder: Path) -> Counter[str]:
    """Count the problems of a training step for each task: `{"single": 64}`.

    `folder` contains the file `ledger.parquet` of the step.
    """
    return Counter(read_column(folder / FILE, "task"))


def joined(folders: Sequence[Path]) -> pd.DataFrame:
    """Join the ledgers (tables of problems and their outcomes) of several steps in one table.

    Each folder in `folders` contains the ledger of one step.
    """
    import pandas as pd

    rows: pd.DataFrame = pd.concat(map(_read, folders), ignore_index=True)
    return rows


def _read(folder: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(folder / FILE)
