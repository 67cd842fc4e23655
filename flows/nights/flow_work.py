"""Do the work of nights (nightly training runs) in Prefect flows, tasks and events.

A comparison of two policies plays only episodes that are not stored yet.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from prefect import get_run_logger

from agentfly_core.config.episodes import SPLITS
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.pipeline.retention import require_space
from agentfly_core.pipeline.services import rollout_services
from agentfly_core.records.dataset import split
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.held_out import held_out
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightEntry, NightLedger
from agentfly_core.reports.nights.nights import recorded_changes
from agentfly_core.reports.nights.promotion_gate import BothHeldOut, Verdict, confirmed_verdict, way
from agentfly_core.runs.summary import Evaluations
from agentfly_core.store.artifact import Artifact, Pointer
from flows.flow_run import experiment_of_flow
from flows.local.state_dirs import settle
from flows.nights.events import emit, request_approval
from flows.run_pages import report_aliases, report_night
from flows.train import train
from tasks.stages import TASKS


@dataclass(frozen=True)
class FlowWork:
    """Implements the protocol `NightWork` in a Prefect flow run. A night is a nightly training run.

    `overrides` are settings for each night, and `hours` is the time limit of a night.
    """

    experiment: Experiment
    ledger: NightLedger
    overrides: list[str]
    hours: float | None

    def dataset(self) -> Artifact:
        """Prepare the experiment's dataset."""
        return TASKS.prepare(self.experiment)

    def require_space(self, night: str, changes: list[str]) -> None:
        """Raise NoSpace if the files of one training step do not fit on the disk.

        The space is checked only if the experiment's model is already in the store. `changes` are
        settings that apply only to this night (nightly training run).
        """
        experiment = self._experiment(changes)
        if model := experiment.start_policy:
            require_space(experiment.store, experiment.sizes(model), saving=False)

    def train(self, night: str, changes: list[str]) -> Summary:
        """Train the nightly run `night`. `changes` are settings that apply only to this run."""
        site, store = self.experiment.site.name, self.experiment.store.uri
        settings = [*self.overrides, *changes]
        return train(self.experiment.name, night, settings, False, site, store, self.hours)

    def verdict(
        self, night: str, champion: Champion, challenger: Champion, earlier: int
    ) -> Verdict:
        """Compare two policies with the settings of the nightly run `night`.

        Episodes that the store lacks are played first. `earlier` is the number of confirmations
        (second comparisons) in earlier nights.
        """
        here, logs = self.experiment, settle().state / "logs" / night
        today = here.settings.model_dump(mode="json")
        changes = recorded_changes(here.store, night, here.name, today)
        experiment = self._experiment(changes or [])
        return Match(experiment, champion.policy, challenger.policy, night, logs).verdict(earlier)

    def happened(self, entry: NightEntry) -> None:
        """Handle a new entry of the night ledger (the list of events of nightly runs).

        Log the entry. If the event is `began` (a night begins), do nothing else. For other events:

        - Send the entry to Prefect as an event.
        - If the event is `awaits_approval`, request approval.
        - If the entry has the decision of the promotion gate (a Judgement), write the night's
          report and update the aliases in MLflow.
        """
        what = entry.event.replace("_", " ")
        get_run_logger().info("%s: %s. %s", entry.night, what, entry.why)
        if entry.event == "began":
            return
        emit(self.experiment.name, entry)
        if entry.event == "awaits_approval":
            request_approval(self.ledger, entry.night, self.experiment.site.name)
        if isinstance(entry.details, Judgement):
            report_aliases(self.ledger, self.experiment.site)
            report_night(self.ledger, self.experiment.site, entry.night)

    def _experiment(self, changes: list[str]) -> Experiment:
        site, store = self.experiment.site.name, self.experiment.store.uri
        return experiment_of_flow(self.experiment.name, [*self.overrides, *changes], site, store)


@dataclass(frozen=True)
class Match:
    """A comparison of two policies on the held-out problems of an experiment.

    If the store lacks episodes, a sampler and workers are started to play these episodes. `owner`
    is the name of the nightly run that uses them, and `logs` is the folder of their logs. Example:
    `Match(experiment, champion, challenger, "nightly-2026-11-21",
    Path(".agentfly/logs/nightly-2026-11-21"))`.
    """

    experiment: Experiment
    champion: Pointer
    challenger: Pointer
    owner: str
    logs: Path

    def verdict(self, earlier: int) -> Verdict:
        """Compare the policies on the test problems, and on the datasets of `promotion.datasets`.

        If the challenger (the new policy) is better, the setting `promotion.confirmation` may
        require a second comparison (confirmation), for example on new problems. The seed of the new
        problems depends on `earlier`, the number of confirmations in earlier nights.
        """
        settings, promotion = self.experiment.settings, self.experiment.settings.promotion
        guards = {
            name: replace(self, experiment=self.experiment.on(settings.on(guard))).played()
            for name, guard in promotion.datasets.items()
        }
        how = way(promotion.confirmation, [one.data.use for one in settings.each.values()])
        return confirmed_verdict(
            how, self.played(), guards, lambda: self.on_fresh_problems(earlier), promotion
        )

    def on_fresh_problems(self, earlier: int) -> BothHeldOut:
        """Return the outcomes of both policies, champion and challenger, on new problems.

        The seed of the problems depends on `earlier`, the number of confirmations (second
        comparisons) in earlier nights. Problems that the experiment has already used are left out.
        """
        here = self.experiment
        fresh = here.on(here.settings.with_fresh_problems(earlier))
        champion, challenger = replace(self, experiment=fresh).played()
        data = here.store.open(TASKS.prepare(here))
        # problems of training or of the first comparison cannot confirm the result
        own = {problem.id for name in SPLITS for problem in split(data, name)}
        wanted = champion.by_problem.keys() - own
        return champion.where(wanted.__contains__), challenger.where(wanted.__contains__)

    def played(self) -> BothHeldOut:
        """Return the outcomes of both policies on the test problems.

        Play episodes that the store lacks.
        """
        here, stored = self.experiment, Evaluations(self.experiment)
        both, data = (self.champion, self.challenger), TASKS.prepare(here)
        if missing := [one for one in both if not stored.is_complete(one, "test", data)]:
            with rollout_services(here, self.challenger, self.owner, self.logs) as player:
                for policy in missing:
                    Evaluator(TASKS, here, data).on_split(player, policy, "test", 0)
        return held_out(stored, self.champion, data), held_out(stored, self.challenger, data)
