"""Whether a night's policy becomes the champion: what the gate compares is played, if it was not
yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.config.evaluation import SPLITS
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.loop.evaluation import evaluated
from agentfly_core.pipeline.services import rollout_services
from agentfly_core.records.dataset import split
from agentfly_core.reports.nights.confirmation import (
    Way,
    confirm,
    fresh_settings,
    looks,
    unseen,
    way,
)
from agentfly_core.reports.nights.held_out import HeldOut, held_out, is_evaluated
from agentfly_core.reports.nights.promotion import Verdict, judge
from agentfly_core.store.store import Pointer
from tasks.stages import TASKS


@dataclass(frozen=True)
class Match:
    """A challenger against the champion: `Match(experiment, champion, challenger,
    "nightly-2026-11-21", Path(".agentfly/logs/nightly-2026-11-21"))`.

    `owner` names the services that are started for what is not played yet.
    """

    experiment: Experiment
    champion: Pointer
    challenger: Pointer
    owner: str
    logs: Path

    def verdict(self, earlier: int) -> Verdict:
        """Judge on the held-out problems and the guards' datasets, and where the challenger wins
        on those that confirm it; `earlier` confirmations lie behind.
        """
        settings, promotion = self.experiment.settings, self.experiment.settings.promotion
        test, how = self._played(self.experiment), self._way
        (first, aside), (first_of_challenger, aside_of_challenger) = (
            looks(how, promotion.confirmation.share, held) for held in test
        )
        guards = {
            name: self._played(self.experiment.on(settings.on(guard)))
            for name, guard in promotion.datasets.items()
        }
        verdict = judge(first, first_of_challenger, promotion, guards)
        if not verdict.promoted or how == "none":
            return verdict
        others = (aside, aside_of_challenger)
        if how == "fresh":
            others = self._fresh(earlier)
        return verdict.confirmed(confirm(how, *others))

    @property
    def _way(self) -> Way:
        settings = self.experiment.settings
        datasets = [one.data.use for one in settings.each.values()]
        return way(settings.promotion.confirmation, datasets)

    def _fresh(self, earlier: int) -> tuple[HeldOut, HeldOut]:
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

    def _played(self, experiment: Experiment) -> tuple[HeldOut, HeldOut]:
        """What both did on the test split of an experiment, played now where it was not."""
        data = TASKS.prepare(experiment)
        store, keys = experiment.store, StageKeys(experiment.settings)
        missing = [
            policy
            for policy in self._both
            if not is_evaluated(store, keys, experiment.evaluation_keys(policy, data, "test"))
        ]
        if missing:
            with rollout_services(experiment, self.challenger, self.owner, self.logs) as services:
                for policy in missing:
                    evaluated(TASKS, experiment, services, policy, data, "test", 0)
        champion, challenger = (held_out(experiment, policy, data) for policy in self._both)
        return champion, challenger

    @property
    def _both(self) -> Sequence[Pointer]:
        return self.champion, self.challenger
