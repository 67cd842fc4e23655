"""The work of nights by Prefect flows, tasks and events; missing episodes are played to compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect import get_run_logger

from agentfly_core.config.evaluation import SPLITS
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.pipeline.retention import require_space_for_night
from agentfly_core.pipeline.services import rollout_services
from agentfly_core.records.dataset import split
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.confirmation import confirmed_verdict, fresh_settings, unseen, way
from agentfly_core.reports.nights.held_out import held_out, is_evaluated
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightEntry, NightLedger
from agentfly_core.reports.nights.night_plan import recorded_changes
from agentfly_core.reports.nights.promotion import BothHeldOut, Verdict
from agentfly_core.store.artifact import Artifact, Pointer
from flows.flow_run import experiment_of_flow
from flows.local.state_dirs import settle
from flows.nights.asking import ask_people
from flows.nights.events import emit
from flows.nights.report import report_aliases, report_night
from flows.train import train
from tasks.stages import TASKS


@dataclass(frozen=True)
class FlowWork:
    """`NightWork` of a flow run: `overrides` differ from the experiment's file, and `hours` limit
    each night.
    """

    experiment: Experiment
    ledger: NightLedger
    overrides: list[str]
    hours: float | None

    def dataset(self) -> Artifact:
        """Prepare the experiment's dataset."""
        return TASKS.prepare(self.experiment)

    def require_space(self, night: str, changes: list[str]) -> None:
        """Raise NoSpace where the disk cannot hold the rest of a night."""
        require_space_for_night(self._experiment(changes), night)

    def train(self, night: str, changes: list[str]) -> Summary:
        """Train a run of this name."""
        site, store = self.experiment.site.name, self.experiment.store.uri
        settings = [*self.overrides, *changes]
        return train(self.experiment.name, night, settings, False, site, store, self.hours)

    def verdict(
        self, night: str, champion: Champion, challenger: Champion, earlier: int
    ) -> Verdict:
        """Compare two policies under the night's own settings; missing episodes are played."""
        here, logs = self.experiment, settle(Path.cwd()).state / "logs" / night
        today = here.settings.model_dump(mode="json")
        changes = recorded_changes(here.store, night, here.name, today)
        experiment = self._experiment(changes or [])
        return Match(experiment, champion.policy, challenger.policy, night, logs).verdict(earlier)

    def happened(self, entry: NightEntry) -> None:
        """Log and emit an entry, ask a person to approve, update aliases and report."""
        what = f"{entry.night}: {entry.event.replace('_', ' ')}. {entry.why}"
        log = get_run_logger()
        (log.warning if entry.event in ("given_up", "worse") else log.info)(what)
        if entry.event == "began":
            return
        emit(self.experiment.name, entry)
        if entry.event == "awaits_approval":
            ask_people(self.ledger, self.experiment.site.name)
        if isinstance(entry.details, Judgement):
            report_aliases(self.ledger, self.experiment.site)
            report_night(self.ledger, self.experiment.site, entry.night)

    def _experiment(self, changes: list[str]) -> Experiment:
        site, store = self.experiment.site.name, self.experiment.store.uri
        return experiment_of_flow(self.experiment.name, [*self.overrides, *changes], site, store)


@dataclass(frozen=True)
class Match:
    """A challenger against the champion: `Match(experiment, champion, challenger,
    "nightly-2026-11-21", Path(".agentfly/logs/nightly-2026-11-21"))`.

    `owner` names the services that are started for missing episodes.
    """

    experiment: Experiment
    champion: Pointer
    challenger: Pointer
    owner: str
    logs: Path

    def verdict(self, earlier: int) -> Verdict:
        """Judge on the held-out problems and the guards' datasets, and confirm a win; `earlier` is
        the number of confirmations so far.
        """
        settings, promotion = self.experiment.settings, self.experiment.settings.promotion
        test = self._played(self.experiment)
        guards = {
            name: self._played(self.experiment.on(settings.on(guard)))
            for name, guard in promotion.datasets.items()
        }
        how = way(promotion.confirmation, [one.data.use for one in settings.each.values()])
        return confirmed_verdict(how, test, guards, lambda: self._fresh(earlier), promotion)

    def _fresh(self, earlier: int) -> BothHeldOut:
        """Return both policies' outcomes on fresh problems."""
        data = self.experiment.store.open(TASKS.prepare(self.experiment))
        own = {problem.id for name in SPLITS for problem in split(data, name)}
        *before, now = (
            self.experiment.on(fresh_settings(self.experiment.settings, number))
            for number in range(earlier + 1)
        )
        champion, challenger = self._played(now)
        datasets = [other.store.open(TASKS.prepare(other)) for other in before]
        used = [{problem.id for problem in split(data, "test")} for data in datasets]
        wanted = unseen(champion.by_problem, own, used)
        return champion.where(wanted.__contains__), challenger.where(wanted.__contains__)

    def _played(self, experiment: Experiment) -> BothHeldOut:
        """Return both policies' outcomes on the test split of a experiment's data."""
        data = TASKS.prepare(experiment)
        store, keys = experiment.store, StageKeys(experiment.settings)
        both = (self.champion, self.challenger)
        missing = [
            policy
            for policy in both
            if not is_evaluated(store, keys, experiment.evaluation_keys(policy, data, "test"))
        ]
        if missing:
            with rollout_services(experiment, self.challenger, self.owner, self.logs) as services:
                for policy in missing:
                    Evaluator(TASKS, experiment, data).on_split(services, policy, "test", 0)
        champion, challenger = (held_out(experiment, policy, data) for policy in both)
        return champion, challenger
