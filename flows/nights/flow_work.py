"""The work of nights: trained, evaluated and reported by Prefect flows, tasks and events."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect import get_run_logger

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline import retention
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import Champion, NightEntry, NightLedger
from agentfly_core.reports.nights.night_plan import recorded_changes
from agentfly_core.reports.nights.promotion import Verdict
from agentfly_core.store.store import Artifact
from flows.flow_run import experiment_of_flow
from flows.local.state_dirs import settle
from flows.nights.aliases import report_aliases
from flows.nights.asking import ask
from flows.nights.events import tell
from flows.nights.judging import Match
from flows.nights.report import report_night
from flows.train import train
from tasks.stages import TASKS


@dataclass(frozen=True)
class FlowWork:
    """What a flow run does for nights (see `NightWork`): `overrides` differ from the experiment's
    file, and `hours` bound each night.
    """

    experiment: Experiment
    ledger: NightLedger
    overrides: list[str]
    hours: float | None

    def dataset(self) -> Artifact:
        """The experiment's dataset, prepared."""
        return TASKS.prepare(self.experiment)

    def require_space(self, night: str, changes: list[str]) -> None:
        """Raise NoSpace, and tell `no_space`, where the disk cannot hold what a night has still to
        write.
        """
        try:
            retention.require_space_for_night(self._experiment(changes), night)
        except retention.NoSpace as error:
            tell("no_space", night, self.experiment.name, str(error))
            raise

    def train(self, night: str, changes: list[str]) -> Summary:
        """Train a run of this name."""
        words, where = (
            [*self.overrides, *changes],
            (self.experiment.site.name, self.experiment.store.uri),
        )
        return train(self.experiment.name, night, words, False, *where, self.hours)

    def verdict(
        self, night: str, champion: Champion, challenger: Champion, earlier: int
    ) -> Verdict:
        """Compare two policies under the night's own settings; plays what is not played yet."""
        logs = settle(Path.cwd()).state / "logs" / night
        today = self.experiment.settings.model_dump(mode="json")
        changes = recorded_changes(self.experiment.store, night, self.experiment.name, today)
        experiment = self._experiment(changes or [])
        match = Match(experiment, champion.policy, challenger.policy, night, logs)
        return match.verdict(earlier)

    def happened(self, entry: NightEntry) -> None:
        """Tell it; ask a person to approve; let MLflow's aliases and the report follow."""
        log, message = (
            get_run_logger(),
            f"{entry.night}: {entry.event.replace('_', ' ')}. {entry.why}",
        )
        log.warning(message) if entry.event in ("given_up", "worse") else log.info(message)
        if entry.event == "began":
            return
        tell(entry.event, entry.night, self.experiment.name, entry.why)
        if entry.event == "awaits_approval":
            ask(self.ledger, self.experiment.site.name, entry.night)
        if "verdict" in entry.details:
            report_aliases(self.ledger, self.experiment.site)
            report_night(self.ledger, self.experiment.site, entry.night)

    def _experiment(self, changes: list[str]) -> Experiment:
        where = (self.experiment.site.name, self.experiment.store.uri)
        return experiment_of_flow(self.experiment.name, [*self.overrides, *changes], *where)
