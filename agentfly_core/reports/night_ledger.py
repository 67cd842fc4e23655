"""The night ledger: what became of each night of an experiment, in the order in which it happened.

It is the only truth about nights; MLflow's aliases and Prefect's events repeat what it says.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias, cast

from agentfly_core.artifacts.store import Artifact, Store
from agentfly_core.formats.json_value import JSON

NightEvent: TypeAlias = Literal[
    "began",
    "finished",
    "promoted",
    "kept",
    "worse",
    "awaits_approval",
    "not_approved",
    "given_up",
    "missed",
    "demoted",
]
NO_DETAILS: Mapping[str, JSON] = {}
DECIDED: tuple[NightEvent, ...] = (
    "promoted",
    "kept",
    "worse",
    "awaits_approval",
    "not_approved",
)
"""What ends a night, or leaves it to a person."""


@dataclass(frozen=True, slots=True)
class Champion:
    """The policy that a challenger has to beat: `Champion("run:nightly-2026-11-20@15",
    Artifact(...))`.
    """

    reference: str
    policy: Artifact

    def to_json(self) -> dict[str, JSON]:
        """As the ledger keeps it."""
        return {"reference": self.reference, "uri": self.policy.uri, "digest": self.policy.digest}

    @classmethod
    def from_json(cls, found: Mapping[str, str]) -> Champion:
        """What `to_json` wrote."""
        return cls(found["reference"], Artifact(found["uri"], found["digest"]))


@dataclass(frozen=True, slots=True)
class NightEntry:
    """One thing that happened: `NightEntry(31, 1763740000000, "nightly-2026-11-21", "promoted",
    "Success rose by 2.1 points (at least 0.9).", Champion(...))`.

    `champion` is who reigns from then on, where someone was promoted; `details` are for reports.
    """

    number: int
    time_ms: int
    night: str
    event: NightEvent
    why: str = ""
    champion: Champion | None = None
    details: Mapping[str, JSON] = field(default_factory=lambda: NO_DETAILS)


@dataclass(frozen=True)
class NightLedger:
    """The ledger of an experiment's nights: one file an entry, `nights/NAME/000031.json`."""

    store: Store
    experiment: str

    @property
    def uri(self) -> str:
        """The folder of its entries."""
        return f"nights/{self.experiment}"

    def entries(self) -> list[NightEntry]:
        """All that happened, oldest first; raises Damaged with the name of a damaged entry."""
        found = []
        for name in self.store.names(self.uri):
            entry = self.store.read_json(f"{self.uri}/{name}")
            named = entry["champion"]
            champion = Champion.from_json(named) if named else None
            what = ("number", "time_ms", "night", "event", "why", "details")
            values = {key: entry[key] for key in what}
            found.append(NightEntry(**values, champion=champion))
        return found

    def append(
        self,
        night: str,
        event: NightEvent,
        why: str = "",
        champion: Champion | None = None,
        details: Mapping[str, JSON] = NO_DETAILS,
    ) -> NightEntry:
        """Write down what happened; two processes may do so at the same time."""
        now = int(time.time() * 1000)
        while True:
            number = len(self.store.names(self.uri)) + 1
            entry = NightEntry(number, now, night, event, why, champion, details)
            value = cast(dict[str, JSON], asdict(entry))
            value["champion"] = champion.to_json() if champion else None
            if self.store.create_json(f"{self.uri}/{number:06d}.json", value):
                return entry

    def champion(self) -> Champion | None:
        """Who reigns; None before the first promotion."""
        line = self.champions()
        return line[-1] if line else None

    def champions(self) -> list[Champion]:
        """All who were promoted and not demoted since, the one who reigns last."""
        line: list[Champion] = []
        for entry in self.entries():
            if entry.event == "promoted" and entry.champion:
                line.append(entry.champion)
            elif entry.event == "demoted":
                line.pop()
        return line

    def sittings(self, night: str) -> int:
        """How many times a night was begun or continued."""
        return sum(e.night == night and e.event == "began" for e in self.entries())

    def last(self, night: str, *events: NightEvent) -> NightEntry | None:
        """The last of these events of a night, or None."""
        found = [e for e in self.entries() if e.night == night and e.event in events]
        return found[-1] if found else None
