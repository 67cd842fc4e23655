"""The night ledger: what became of each night of an experiment, in the order in which it happened.

It is the only truth about nights; MLflow's aliases and Prefect's events repeat what it says.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
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
FILE = re.compile(r"(\d{6})\.json$")
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

    @property
    def run(self) -> str:
        """The run that it is of."""
        return self.reference.removeprefix("run:").partition("@")[0]

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
        found = [e for e in self.entries if e.night == night and e.event in events]
        return found[-1] if found else None

    def attempts(self, night: str) -> int:
        """How many times a night was begun or continued."""
        return sum(e.night == night and e.event == "began" for e in self.entries)


@dataclass(frozen=True)
class NightLedger:
    """The ledger of an experiment's nights: one file an entry, `nights/NAME/000031.json`."""

    store: Store
    experiment: str

    @property
    def uri(self) -> str:
        """The folder of its entries."""
        return f"nights/{self.experiment}"

    def read(self) -> NightHistory:
        """All that happened; raises Damaged with the name of a damaged entry."""
        return NightHistory([self._entry(number) for number in self._numbers()])

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
        now = int(time.time() * 1000)
        while True:
            number = max(self._numbers(), default=0) + 1
            entry = NightEntry(number, now, night, event, why, champion, details)
            value = cast(dict[str, JSON], asdict(entry))
            value["champion"] = champion.to_json() if champion else None
            # A store that wrote it, and whose answer was lost, refuses the same entry again.
            if self.store.create_json(self._file(number), value) or self._entry(number) == entry:
                return entry

    def _numbers(self) -> list[int]:
        return [int(found[1]) for name in self.store.names(self.uri) if (found := FILE.match(name))]

    def _file(self, number: int) -> str:
        return f"{self.uri}/{number:06d}.json"

    def _entry(self, number: int) -> NightEntry:
        entry = self.store.read_json(self._file(number))
        named = entry["champion"]
        champion = Champion.from_json(named) if named else None
        what = ("number", "time_ms", "night", "event", "why", "details")
        return NightEntry(**{key: entry[key] for key in what}, champion=champion)
