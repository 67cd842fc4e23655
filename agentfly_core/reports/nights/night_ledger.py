"""The night ledger: the events of an experiment's nights (nightly training runs), in order.

The ledger is authoritative: MLflow's aliases and Prefect's events are derived from the ledger.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from agentfly_core.config.experiment import Night
from agentfly_core.config.reference import RunPolicy
from agentfly_core.config.tasks import SINGLE
from agentfly_core.reports.nights.promotion_gate import Verdict
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
"""Events that decide about the policy of a night (a nightly training run), or that leave this
decision to a person.
"""


@dataclass(frozen=True, slots=True)
class Champion:
    """The policy that a new policy has to beat: `Champion(RunPolicy("nightly-2026-11-20", 15),
    Pointer("runs/nightly-2026-11-20/steps/000015/policy", "9f2c..."))`.
    """

    reference: RunPolicy
    policy: Pointer

    def __post_init__(self) -> None:
        require_uri(self.policy.uri)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start of a night: `Beginning(Night(number=12), "f491...84", {"single": 4096}, 0,
    ["night={...}", "model=run:nightly-2026-11-20@15"])`.

    - `night`: the number of the night, and the position of the night's first problem in each
      task (see `Night`)
    - `dataset`: the digest of the dataset
    - `problems`: the number of training problems of each task
    - `seed`: determines the order of problems
    - `changes`: the overrides of settings for the training of this night
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
            places.append(f"problem {place.problem} of {size} in epoch {place.epoch}{of_task}")
        return f"Night {self.night.number} begins at {', '.join(places)}."


@dataclass(frozen=True, slots=True)
class ScoredProblems:
    """The number of problems of each task that were played and scored in a night (a nightly
    training run): `ScoredProblems({"single": 960})`.
    """

    by_task: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The comparison of a night's policy (the challenger) with the champion, which is the policy
    that new policies must beat:
    `Judgement(Verdict(...), champion=Champion(...), challenger=Champion(...))`.
    """

    verdict: Verdict
    champion: Champion
    challenger: Champion


EntryDetails: TypeAlias = Beginning | ScoredProblems | Judgement | Champion | None
"""The details of an event of a night (a nightly training run).

The type is `Beginning` if the night began, `ScoredProblems` if the night finished or was given up,
`Judgement` if the promotion gate compared two policies, and `Champion` if a person promoted a
policy.
"""


@dataclass(frozen=True, slots=True)
class NightEntry:
    """An event of a night (a nightly training run), as an entry of the night ledger.

    `NightEntry(31, 1763740000000, "nightly-2026-11-21", "promoted", "Success rose by 2.1 points (at
    least 0.9).", Judgement(...))`
    """

    number: int
    time_ms: int
    night: str
    event: NightEvent
    why: str = ""
    details: EntryDetails = None

    @property
    def cells(self) -> tuple[str, str]:
        """Return the time and the name of the event, as cells of a table."""
        when = datetime.fromtimestamp(self.time_ms / 1000).strftime("%Y-%m-%d %H:%M")
        return when, self.event.replace("_", " ")

    @property
    def champion(self) -> Champion | None:
        """The policy that this entry promoted, or None."""
        match self.event, self.details:
            case "promoted", Judgement(challenger=policy) | (Champion() as policy):
                return policy
        return None


ENTRY = TypeAdapter(NightEntry)


@dataclass(frozen=True, slots=True)
class NightHistory:
    """All entries of a night ledger, the oldest first:
    `NightHistory((NightEntry(1, ...), NightEntry(2, ...)))`.
    """

    entries: Sequence[NightEntry]

    @property
    def champion(self) -> Champion | None:
        """The champion (the policy that new policies must beat), or None without a champion."""
        line: list[Champion] = []
        for entry in self.entries:
            if entry.champion:
                line.append(entry.champion)
            # only the current champion can be demoted
            elif entry.event == "demoted" and line and line[-1].reference.run == entry.night:
                line.pop()
        return line[-1] if line else None

    @property
    def champion_in_words(self) -> str:
        """A sentence that names the champion (the policy that new policies must beat)."""
        champion = self.champion
        return f"The champion is {champion.reference}." if champion else "There is no champion."

    def last(self, night: str, *events: NightEvent) -> NightEntry | None:
        """Return the latest entry of the night `night` that has an event in `events`, or None."""
        entries = [e for e in self.entries if e.night == night and e.event in events]
        return entries[-1] if entries else None

    def beginning(self, night: str) -> Beginning | None:
        """Return the recorded plan of a night (a training run), or None if no plan is recorded."""
        plans = [e.details for e in self.entries if e.night == night]
        return next((plan for plan in plans if isinstance(plan, Beginning)), None)

    def attempts(self, night: str) -> int:
        """Return how often the training of a night was started or continued."""
        return sum(e.night == night and e.event == "began" for e in self.entries)


@dataclass(frozen=True)
class NightLedger:
    """The events of an experiment's nights (nightly training runs): `NightLedger(store,
    "quickstart")`.

    Each event is an entry in a file, such as `nights/NAME/000031.json`. An entry contains the
    digest of the previous entry. `head.json` contains the number of the last entry, so missing
    files at the end are noticed.
    """

    store: Store
    experiment: str

    def read(self) -> NightHistory:
        """Read all entries.

        Raises Damaged if a file is damaged or an entry is missing, or if an entry contains a wrong
        digest of the previous entry.
        """
        return NightHistory([*map(ENTRY.validate_python, self._chain())])

    def append(
        self, night: str, event: NightEvent, why: str = "", details: EntryDetails = None
    ) -> NightEntry:
        """Append an entry, and return it. Two processes may append at the same time."""
        entry = NightEntry(0, int(time.time() * 1000), night, event, why, details)
        value = ENTRY.dump_python(entry, mode="json")
        while True:
            chain = self._chain()
            number, before = len(chain) + 1, digest(chain[-1]) if chain else ""
            value |= {"number": number, "before": before}
            file = self._file(number)
            # Created, not overwritten: only one of two processes gets the number, and the other
            # process tries the next number. A store may retry a write if the answer was lost. The
            # retry is refused, although the first write succeeded, so the file is compared.
            if self.store.create_json(file, value) or self.store.read_json(file) == value:
                # written after the entry, because a head without its entry would look like a gap
                self.store.write_json(self._head, {"number": number})
                return replace(entry, number=number)

    def _chain(self) -> list[JsonObject]:
        chain, before = list[JsonObject](), ""
        for number in range(1, self._length() + 1):
            entry: JsonObject = self.store.read_json(self._file(number))
            if (entry["number"], entry["before"]) != (number, before):
                raise Damaged(
                    f"{self._where(number)} does not match the entry before it. Restore both "
                    "entries from a copy of the store."
                )
            chain.append(entry)
            before = digest(entry)
        return chain

    def _length(self) -> int:
        """Return the number of entries. Raises Damaged if an entry is missing."""
        # read first, because other processes may append
        head = self.store.read_json(self._head)
        names = self.store.names(self._folder)
        numbers = {int(match[1]) for name in names if (match := FILE.match(name))}
        last = max([*numbers, head["number"] if head else 0])
        if lost := sorted({*range(1, last + 1)} - numbers):
            raise Damaged(
                f"The ledger of {self.experiment} lacks {len(lost)} of its {last} entries: "
                f"{', '.join(map(self._where, lost))}. Restore these entries from a copy of the "
                "store, or give the experiment another name."
            )
        return last

    @property
    def _folder(self) -> str:
        return f"nights/{self.experiment}"

    @property
    def _head(self) -> str:
        return f"{self._folder}/head.json"

    def _file(self, number: int) -> str:
        return f"{self._folder}/{number:06d}.json"

    def _where(self, number: int) -> str:
        return f"{self.store.uri}/{self._file(number)}"
