"""The night ledger: the events of an experiment's nights, in their order.

It is the only truth about nights. MLflow's aliases and Prefect's events follow it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from agentfly_core.config.experiment import Night
from agentfly_core.config.reference import RunPolicy
from agentfly_core.config.tasks import SINGLE
from agentfly_core.reports.nights.promotion import Verdict
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.file_shapes import require_uri
from agentfly_core.system.formats.hashing import digest

FILE = re.compile(r"(\d{6})\.json$")
JsonObject: TypeAlias = dict[str, Any]
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
DECIDED: tuple[NightEvent, ...] = ("promoted", "kept", "worse", "awaits_approval", "not_approved")
"""Events that end a night, or leave it to a person."""


@dataclass(frozen=True, slots=True)
class Champion:
    """A policy that a challenger has to beat: `Champion(RunPolicy("nightly-2026-11-20", 15),
    Pointer("runs/nightly-2026-11-20/steps/000015/policy", "9f2c..."))`.
    """

    reference: RunPolicy
    policy: Pointer

    def __post_init__(self) -> None:
        require_uri(self.policy.uri)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start of a night: `Beginning(Night(number=12), "f491...84",
    {"single": 4096}, 0, ["night={...}", "model=run:nightly-2026-11-20@15"])`.

    `dataset` is the digest of the dataset, `problems` the size of its training split by task, and
    `seed` the seed of the order. `changes` are settings that differ from the experiment's.
    """

    night: Night
    dataset: str
    problems: Mapping[str, int]
    seed: int
    changes: Sequence[str]

    def __str__(self) -> str:
        places = []
        for name, size in self.problems.items():
            place, of_task = self.night.of(name), "" if name == SINGLE else f" of {name}"
            places.append(f"problem {place.problem} of {size} of epoch {place.epoch}{of_task}")
        return f"Night {self.night.number} begins at {', '.join(places)}."


@dataclass(frozen=True, slots=True)
class ScoredProblems:
    """Numbers of problems that a night scored, by task: `ScoredProblems({"single": 960})`."""

    by_task: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The comparison of a night's policy with the champion: `Judgement(Verdict(...),
    champion=Champion(...), challenger=Champion(...))`.
    """

    verdict: Verdict
    champion: Champion
    challenger: Champion


EntryDetails: TypeAlias = Beginning | ScoredProblems | Judgement | Champion | None
"""`Beginning` of a night that began, `ScoredProblems` of one that finished or was given up,
`Judgement` of a decision of the gate, and the `Champion` that a person promoted.
"""


@dataclass(frozen=True, slots=True)
class NightEntry:
    """An event: `NightEntry(31, 1763740000000, "nightly-2026-11-21", "promoted", "Success rose by
    2.1 points (at least 0.9).", Judgement(...))`.
    """

    number: int
    time_ms: int
    night: str
    event: NightEvent
    why: str = ""
    details: EntryDetails = None

    @property
    def champion(self) -> Champion | None:
        """The promoted policy of a promotion."""
        match self.event, self.details:
            case "promoted", Judgement(challenger=policy) | (Champion() as policy):
                return policy
        return None


ENTRY = TypeAdapter(NightEntry)


@dataclass(frozen=True, slots=True)
class NightHistory:
    """All entries, oldest first: `NightHistory((NightEntry(1, ...), NightEntry(2, ...)))`."""

    entries: Sequence[NightEntry]

    @property
    def champion(self) -> Champion | None:
        """The champion; None before the first promotion."""
        line: list[Champion] = []
        for entry in self.entries:
            if entry.champion:
                line.append(entry.champion)
            elif entry.event == "demoted" and line and line[-1].reference.run == entry.night:
                line.pop()
        return line[-1] if line else None

    def last(self, night: str, *events: NightEvent) -> NightEntry | None:
        """Return the last of these events of a night, or None."""
        entries = [e for e in self.entries if e.night == night and e.event in events]
        return entries[-1] if entries else None

    def beginning(self, night: str) -> Beginning | None:
        """Return the plan of a night that was begun, or None."""
        plans = [e.details for e in self.entries if e.night == night]
        return next((plan for plan in plans if isinstance(plan, Beginning)), None)

    def attempts(self, night: str) -> int:
        """Return how many times a night was begun or continued."""
        return sum(e.night == night and e.event == "began" for e in self.entries)


@dataclass(frozen=True)
class NightLedger:
    """The ledger of an experiment's nights: `NightLedger(store, "quickstart")`.

    The entries `nights/NAME/000031.json` are a chain: each has the digest of the one before.
    """

    store: Store
    experiment: str

    def read(self) -> NightHistory:
        """Read all entries; raises Damaged for a damaged entry, a gap and a broken chain."""
        return NightHistory([*map(ENTRY.validate_python, self._chain())])

    def append(
        self, night: str, event: NightEvent, why: str = "", details: EntryDetails = None
    ) -> NightEntry:
        """Append an entry; two processes may do so at the same time."""
        entry = NightEntry(0, int(time.time() * 1000), night, event, why, details)
        value = ENTRY.dump_python(entry, mode="json")
        while True:
            chain = self._chain()
            number, before = len(chain) + 1, digest(chain[-1]) if chain else ""
            value |= {"number": number, "before": before}
            file = self._file(number)
            # A retried write is refused if the first one succeeded but its answer was lost.
            if self.store.create_json(file, value) or self.store.read_json(file) == value:
                return ENTRY.validate_python(value)

    def _chain(self) -> list[JsonObject]:
        names = self.store.names(f"nights/{self.experiment}")
        numbers = [int(match[1]) for name in names if (match := FILE.match(name))]
        chain, before = list[JsonObject](), ""
        for number in range(1, max(numbers, default=0) + 1):
            entry: JsonObject = self.store.read_json(self._file(number)) or {}
            if (entry.get("number"), entry.get("before")) != (number, before):
                raise Damaged(
                    f"{self.store.uri}/{self._file(number)} is missing or does not follow the "
                    "entry before it. Put the ledger back from a copy of the store, or give the "
                    "experiment another name to start over."
                )
            chain.append(entry)
            before = digest(entry)
        return chain

    def _file(self, number: int) -> str:
        return f"nights/{self.experiment}/{number:06d}.json"
