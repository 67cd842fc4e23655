"""What happens from one night to the next: nights are finished or given up, played, and judged.

How a night is trained, evaluated and told is `NightWork`'s; so months of nights can be simulated in
seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.pipeline.retention import NoSpace
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import (
    DECIDED,
    Champion,
    NightEntry,
    NightEvent,
    NightLedger,
)
from agentfly_core.reports.nights.night_plan import (
    beginning,
    edited,
    finished,
    first_changes,
    played,
    recorded_changes,
    undone,
)
from agentfly_core.reports.nights.promotion import CONFIRMATION, Verdict
from agentfly_core.runs.run import known_run, refuse_if_open
from agentfly_core.store.lock import Locked
from agentfly_core.store.store import Artifact, Store
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault

logger = logging.getLogger(__name__)


class NightWork(Protocol):
    """What nights need done."""

    def dataset(self) -> Artifact:
        """The experiment's dataset, prepared."""

    def require_space(self, night: str, changes: list[str]) -> None:
        """Raise NoSpace where the disk cannot hold what a night has still to write."""

    def train(self, night: str, changes: list[str]) -> Summary:
        """Train a run of this name with these settings from where it stands to its end."""

    def verdict(
        self, night: str, champion: Champion, challenger: Champion, earlier: int
    ) -> Verdict:
        """Compare two policies; `earlier` confirmations have used up problems before."""

    def happened(self, entry: NightEntry) -> None:
        """Tell people and other systems what the ledger says now."""


@dataclass(frozen=True)
class Nights:
    """The nights of an experiment, each begun or continued at most `attempts` times; with
    `approval` a better policy waits for a person.
    """

    experiment: Experiment
    ledger: NightLedger
    work: NightWork
    attempts: int
    approval: bool

    def run(self, tonight: str) -> Summary:
        """Finish earlier nights or give them up, and play tonight's."""
        for night in undone(self.experiment.store, self.ledger.read(), tonight):
            self.finish(night)
        return self.play(tonight)

    def finish(self, night: str) -> None:
        """Continue a night to its end, or give it up after this many attempts in all, and at once
        where its code was edited; one that is at its end and could not be judged is left for the
        next night to judge.

        Raises Locked while another process writes it, NoSpace where the disk cannot hold it: an
        attempt more would not help.
        """
        if differs := edited(self.experiment.store, night, self.experiment.code):
            self._give_up(night, f"Its code was edited since it began: {'; '.join(differs)}.")
            return
        why = f"It was begun {self.attempts} times and never came to its end."
        for _ in range(self.ledger.read().attempts(night), self.attempts):
            try:
                self.play(night)
                return
            except (Locked, NoSpace):
                raise
            except Exception as error:  # whatever keeps it from its end, tonight can train
                logger.exception("The night %s could not be finished.", night)
                why = f"It was tried {self.attempts} times. The last error: {fault(error)}"
            if finished(self.experiment.store, night):
                return
        self._give_up(night, why)

    def _give_up(self, night: str, why: str) -> None:
        scored: dict[str, JSON] = {"played": self._scored(night)}
        given_up = self.ledger.append(night, "given_up", why, details=scored)
        self.work.happened(given_up)

    def _scored(self, night: str) -> dict[str, int]:
        return played(self.experiment.store, night, self.experiment.settings.each)

    def play(self, night: str) -> Summary:
        """Train a night from where it stands to its end, and decide about its policy, once."""
        summary = finished(self.experiment.store, night)
        if summary is None or self.ledger.last(night, "finished") is None:
            changes = self._begin(night)
            summary = self.work.train(night, changes)
            before, after = summary["success_before"], summary["success_after"]
            why = f"Success was {before:.1%} and is {after:.1%}."
            ended: dict[str, JSON] = {
                "before": before,
                "after": after,
                "played": self._scored(night),
            }
            self.work.happened(self.ledger.append(night, "finished", why, details=ended))
        if self.ledger.last(night, *DECIDED) is None:
            self.decide(night)
        return summary

    def decide(self, night: str) -> None:
        """Judge a finished night's policy against the champion, or, before there is one, against
        the policy that the night started from.

        Where another became the champion meanwhile, it is judged against that one.
        """
        challenger = last_policy(self.experiment.store, night)
        while True:
            reigning = self.ledger.champion()
            start = Champion(f"run:{night}@0", policy_of(self.experiment.store, night, 0))
            champion = reigning or start
            verdict = self.work.verdict(night, champion, challenger, confirmations(self.ledger))
            if self.ledger.champion() == reigning:
                break
        event: NightEvent = "worse" if verdict.worse else "kept"
        if verdict.promoted:
            event = "awaits_approval" if self.approval else "promoted"
        details: dict[str, JSON] = {
            "verdict": verdict.to_json(),
            "champion": champion.to_json(),
            "challenger": challenger.to_json(),
        }
        reigns = challenger if event == "promoted" else None
        self.work.happened(self.ledger.append(night, event, verdict.why, reigns, details))

    def _begin(self, night: str) -> list[str]:
        """Write down that a night is begun or continued, and with which changes; raises Locked and
        NoSpace before.
        """
        refuse_if_open(self.experiment.store, night)
        history, why = self.ledger.read(), "It is continued."
        begun = history.last(night, "began")
        details: Mapping[str, Any] = begun.details if begun else {}
        settings, store = self.experiment.settings, self.experiment.store
        today = settings.model_dump(mode="json")
        changes = recorded_changes(store, night, self.experiment.name, today)
        if changes is None and details:
            changes = details["changes"]
        if changes is None:
            data = self.work.dataset()
            begins = beginning(store, history, data, settings.seed)
            changes = first_changes(history, begins.night, settings.promotion.start)
            why = str(begins)
            details = {**begins.to_json(), "changes": changes}
        self.work.require_space(night, changes)
        self.work.happened(self.ledger.append(night, "began", why, details=details))
        return changes


def last_policy(store: Store, run: str) -> Champion:
    """The policy of a run's last step, as a champion."""
    step = known_run(store, run)["settings"]["steps"]
    assert isinstance(step, int)
    return Champion(f"run:{run}@{step}", policy_of(store, run, step))


def confirmations(ledger: NightLedger) -> int:
    """How many confirmations there have been: each has problems of its own."""
    verdicts = [entry.details.get("verdict") for entry in ledger.entries()]
    parsed = [Verdict.from_json(verdict) for verdict in verdicts if isinstance(verdict, dict)]
    return sum(one.name == CONFIRMATION for verdict in parsed for one in verdict.comparisons)
