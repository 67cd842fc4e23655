"""Nights with scripted training and comparisons."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.retention import NoSpace
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import Champion, NightEntry, NightLedger
from agentfly_core.reports.nights.nights import Nights
from agentfly_core.reports.nights.promotion_gate import Comparison, Verdict
from agentfly_core.store.artifact import Artifact
from tests.support.scored_nights import scripted_run


@dataclass
class Scripted:
    """Work without episodes: nights of two scored steps; `fate` may raise, `wins` gives the
    verdict.
    """

    experiment: Experiment
    data: Artifact
    fate: Callable[[str], None] = lambda night: None
    wins: bool = True
    worse: bool = False
    full: bool = False
    judge: Callable[[], None] = lambda: None
    reported: list[NightEntry] = field(default_factory=list)
    compared: list[tuple[str, str, int]] = field(default_factory=list)

    def dataset(self) -> Artifact:
        return self.data

    def require_space(self, night: str, changes: list[str]) -> None:
        if self.full:
            raise NoSpace("The disk has 0.1 GiB free.")

    def train(self, night: str, changes: list[str]) -> Summary:
        return scripted_run(self.experiment, night, changes, lambda: self.fate(night))

    def verdict(
        self, night: str, champion: Champion, challenger: Champion, earlier: int
    ) -> Verdict:
        self.compared.append((str(champion.reference), str(challenger.reference), earlier))
        self.judge()
        gain = Comparison("goal", 0.5, 0.6, 0.1, 0.05 if self.wins else -0.01, 0.0, 0.05, 100)
        return Verdict((gain,), self.worse)

    def happened(self, entry: NightEntry) -> None:
        self.reported.append(entry)


def nights(work: Scripted, approval: bool = False) -> Nights:
    ledger = NightLedger(work.experiment.store, work.experiment.name)
    return Nights(work.experiment, ledger, work, 2, approval)
