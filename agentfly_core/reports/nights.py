"""What happens from one night to the next: nights are finished or given up, played, and judged.

How a night is trained, evaluated and told is `NightWork`'s; so months of nights can be simulated in
seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from agentfly_core.artifacts.lock import Locked
from agentfly_core.artifacts.store import Artifact
from agentfly_core.formats.json_value import JSON
from agentfly_core.formats.text import fault
from agentfly_core.pipeline.retention import NoSpace
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.night_ledger import (
    DECIDED,
    NO_DETAILS,
    Champion,
    NightEntry,
    NightEvent,
    NightLedger,
)
from agentfly_core.reports.night_plan import (
    beginning,
    first_changes,
    recorded_changes,
    undone,
)
from agentfly_core.reports.promotion import CONFIRMATION, Verdict
from agentfly_core.runs.context import ExperimentContext, policy_of
from agentfly_core.runs.run import record_of

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

    context: ExperimentContext
    ledger: NightLedger
    work: NightWork
    attempts: int
    approval: bool

    def run(self, tonight: str) -> Summary:
        """Finish earlier nights or give them up, and play tonight's."""
        for night in undone(self.context, self.ledger, tonight):
            self.finish(night)
        return self.play(tonight)

    def finish(self, night: str) -> None:
        """Continue a night to its end, or give it up after so many attempts in all.

        Raises Locked while another process writes it, NoSpace where the disk cannot hold it: an
        attempt more would not help.
        """
        why = f"It was begun {self.attempts} times and never came to its end."
        for _ in range(self.ledger.sittings(night), self.attempts):
            try:
                self.play(night)
                return
            except (Locked, NoSpace):
                raise
            except Exception as error:  # whatever keeps it from its end, tonight can train
                logger.exception("The night %s could not be finished.", night)
                why = f"It was begun {self.attempts} times. The last error: {fault(error)}"
        self._write(night, "given_up", why)

    def play(self, night: str) -> Summary:
        """Train a night from where it stands to its end, and decide about its policy."""
        begun, why = self.ledger.last(night, "began"), "It is continued."
        details = begun.details if begun else {}
        if (changes := recorded_changes(self.context, night)) is None:
            begins = beginning(self.context, self.ledger, self.work.dataset())
            changes = first_changes(self.context, self.ledger, begins.night)
            details, why = begins.to_json(), str(begins)
        self.work.require_space(night, changes)
        self._write(night, "began", why, details=details)
        summary = self.work.train(night, changes)
        before, after = summary["success_before"], summary["success_after"]
        why = f"Success was {before:.1%} and is {after:.1%}."
        self._write(night, "finished", why, details={"before": before, "after": after})
        if self.ledger.last(night, *DECIDED) is None:
            self.decide(night)
        return summary

    def decide(self, night: str) -> None:
        """Judge a finished night's policy against the champion, or, before there is one, against
        the policy that the night started from.
        """
        challenger, champion = last_policy(self.context, night), self.ledger.champion()
        if champion is None:
            champion = Champion(f"run:{night}@0", policy_of(self.context.store, night, 0))
        verdict = self.work.verdict(night, champion, challenger, confirmations(self.ledger))
        event: NightEvent = "worse" if verdict.worse else "kept"
        if verdict.promoted:
            event = "awaits_approval" if self.approval else "promoted"
        details: dict[str, JSON] = {
            "verdict": verdict.to_json(),
            "champion": champion.to_json(),
            "challenger": challenger.to_json(),
        }
        reigns = challenger if event == "promoted" else None
        self._write(night, event, verdict.why, reigns, details)

    def _write(
        self,
        night: str,
        event: NightEvent,
        why: str = "",
        champion: Champion | None = None,
        details: Mapping[str, JSON] = NO_DETAILS,
    ) -> None:
        self.work.happened(self.ledger.append(night, event, why, champion, details))


def last_policy(context: ExperimentContext, run: str) -> Champion:
    """The policy of a run's last step, as it would reign."""
    record = record_of(context.store, run)
    assert record is not None, f"{run} is there, since its policy is judged"
    step = record["science"]["steps"]
    assert isinstance(step, int)
    return Champion(f"run:{run}@{step}", policy_of(context.store, run, step))


def confirmations(ledger: NightLedger) -> int:
    """How many confirmations there have been: each has problems of its own."""
    verdicts = [entry.details.get("verdict") for entry in ledger.entries()]
    found = [Verdict.from_json(verdict) for verdict in verdicts if isinstance(verdict, dict)]
    return sum(one.name == CONFIRMATION for verdict in found for one in verdict.comparisons)
