"""The night ledger: what became of each night of an experiment, in the order in which it happened.

It is the only truth about nights; MLflow's aliases and Prefect's events repeat what it says.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agentfly_core.reports.nights.ledger_chain import LedgerChain
from agentfly_core.store.store import Pointer, Store
from agentfly_core.system.formats.json_value import JSON

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
    Pointer(...))`.
    """

    reference: str
    policy: Pointer

    @property
    def run(self) -> str:
        """The run that it is of."""
        return self.reference.removeprefix("run:").partition("@")[0]

    def to_json(self) -> dict[str, JSON]:
        """As the ledger keeps it."""
        return {"reference": self.reference, "uri": self.policy.uri, "digest": self.policy.digest}

    @classmethod
    def from_json(cls, fields: Mapping[str, str]) -> Champion:
        """What `to_json` wrote."""
        return cls(fields["reference"], Pointer.of(fields, "an entry of the night ledger"))


@dataclass(frozen=True, slots=True)
class NightEntry:
    """One thing that happened: `NightEntry(31, 1763740000000, "nightly-2026-11-21", "promoted",
    "Success rose by 2.1 points (at least 0.9).", Champion(...))`.

    `champion` is the policy that was promoted, where one was; `details` are for reports.
    """

    number: int
    time_ms: int
    night: str
    event: NightEvent
    why: str = ""
    champion: Champion | None = None
    details: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NightHistory:
    """All that happened, oldest first: `NightHistory((NightEntry(1, ...), NightEntry(2, ...)))`."""

    entries: Sequence[NightEntry]

    @property
    def champion(self) -> Champion | None:
        """The champion; None before the first promotion."""
        line: list[Champion] = []
        for entry in self.entries:
            if entry.champion:
                line.append(entry.champion)
            elif entry.event == "demoted" and line and line[-1].run == entry.night:
                line.pop()
        return line[-1] if line else None

    def last(self, night: str, *events: NightEvent) -> NightEntry | None:
        """The last of these events of a night, or None."""
        entries = [e for e in self.entries if e.night == night and e.event in events]
        return entries[-1] if entries else None

    def attempts(self, night: str) -> int:
        """How many times a night was begun or continued."""
        return sum(e.night == night and e.event == "began" for e in self.entries)


@dataclass(frozen=True)
class NightLedger:
    """The ledger of an experiment's nights: one file an entry, `nights/NAME/000031.json`."""

    store: Store
    experiment: str

    @property
    def chain(self) -> LedgerChain:
        """The files of its entries."""
        return LedgerChain(self.store, self.experiment)

    @property
    def uri(self) -> str:
        """The folder of its entries."""
        return self.chain.uri

    def read(self) -> NightHistory:
        """All that happened; raises Damaged with the name of a damaged or missing entry."""
        return NightHistory([*map(_entry, self.chain.read())])

    def entries(self) -> Sequence[NightEntry]:
        """All that happened, oldest first."""
        return self.read().entries

    def champion(self) -> Champion | None:
        """The champion; None before the first promotion."""
        return self.read().champion

    def last(self, night: str, *events: NightEvent) -> NightEntry | None:
        """The last of these events of a night, or None."""
        return self.read().last(night, *events)

    def append(
        self,
        night: str,
        event: NightEvent,
        why: str = "",
        champion: Champion | None = None,
        details: Mapping[str, JSON] = {},
    ) -> NightEntry:
        """Write down what happened; two processes may do so at the same time."""
        value: dict[str, JSON] = {
            "time_ms": int(time.time() * 1000),
            "night": night,
            "event": event,
            "why": why,
            "champion": champion.to_json() if champion else None,
            "details": {**details},
        }
        return _entry(self.chain.append(value))


def _entry(value: Mapping[str, Any]) -> NightEntry:
    champion = Champion.from_json(value["champion"]) if value["champion"] else None
    fields = ("number", "time_ms", "night", "event", "why", "details")
    return NightEntry(**{name: value[name] for name in fields}, champion=champion)
