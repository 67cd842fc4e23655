"""The files of a night ledger, as a chain: each entry contains the digest of the one before.

A missing entry is restored from the record of its night, `runs/NIGHT/night.json`, or reported.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import JSON

FILE = re.compile(r"(\d{6})\.json$")
Value = dict[str, Any]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LedgerChain:
    """The entries of an experiment, `nights/NAME/000031.json`; `head.json` has the last number."""

    store: Store
    experiment: str

    @property
    def uri(self) -> str:
        """The folder of the entries."""
        return f"nights/{self.experiment}"

    def read(self) -> Sequence[Value]:
        """All entries; raises Damaged for a damaged or missing one and for a broken chain."""
        entries = [self.entry(number) for number in range(1, self.length() + 1)]
        before = ""
        for number, entry in enumerate(entries, 1):
            if (entry["number"], entry["before"]) != (number, before):
                raise Damaged(
                    f"{self._where(number)} does not follow the entry before it. Put both back "
                    "from a copy."
                )
            before = digest(entry)
        return entries

    def append(self, value: Mapping[str, JSON]) -> Value:
        """Append an entry to the ledger; two processes may do so at the same time."""
        while True:
            number = self.length() + 1
            before = digest(self.entry(number - 1)) if number > 1 else ""
            entry: Value = {**value, "number": number, "before": before}
            # A retried write is refused if the first one succeeded but its answer was lost.
            if self.store.create_json(self._file(number), entry) or self.entry(number) == entry:
                self.store.write_json(f"{self.uri}/head.json", {"number": number})
                self._copy_to_night(entry)
                return entry

    def entry(self, number: int) -> Value:
        """The entry of a number; raises Damaged where it is missing or damaged."""
        entry: Value | None = self.store.read_json(self._file(number))
        if entry is None:
            raise Damaged(f"{self._where(number)} is missing.")
        return entry

    def length(self) -> int:
        """The number of entries, once missing ones are restored; raises Damaged for a gap."""
        head = self._read(f"{self.uri}/head.json")  # before the names: others append
        numbers = self._numbers()
        last = max([*numbers, head["number"] if head else 0])
        if head and len(numbers) == last:
            return last
        copies = self._copies()
        last = max([last, *copies])
        lacking = [number for number in range(1, last + 1) if number not in numbers]
        missing = [number for number in lacking if self.store.read_json(self._file(number)) is None]
        for number in missing:
            if number in copies:
                self.store.create_json(self._file(number), copies[number])
                logger.warning(
                    "%s was missing and is restored from %s.",
                    self._where(number),
                    RunLayout(copies[number]["night"]).night,
                )
        if lost := [number for number in missing if number not in copies]:
            raise Damaged(
                f"The ledger of {self.experiment} has a gap of {len(lost)} in {last} entries: "
                f"{', '.join(map(self._where, lost))}. No run has a copy. Put them back from a "
                "copy of the store, or give the experiment another name to begin anew."
            )
        return last

    def _numbers(self) -> set[int]:
        return {int(match[1]) for name in self.store.names(self.uri) if (match := FILE.match(name))}

    def _copies(self) -> dict[int, Value]:
        """The entries that runs of the experiment keep, by number."""
        entries = []
        for run in self.store.names("runs"):
            record = self._read(RunLayout(run).night)
            if record and record["experiment"] == self.experiment:
                entries += record["entries"]
        return {entry["number"]: entry for entry in entries}

    def _copy_to_night(self, entry: Value) -> None:
        """Copy the entry to the run of its night.

        The first copy includes the night's entries from before the run existed.
        """
        layout = RunLayout(entry["night"])
        if Path(layout.record).name not in self.store.names(layout.uri):
            return
        record = self._read(layout.night)
        entries = record["entries"] if record else self._entries_of(entry["night"], entry["number"])
        kept: dict[str, JSON] = {"experiment": self.experiment, "entries": [*entries, entry]}
        self.store.write_json(layout.night, kept)

    def _read(self, uri: str) -> Value | None:
        """Read a file that can be recreated; a damaged file counts as missing."""
        with suppress(Damaged):
            value: Value | None = self.store.read_json(uri)
            return value
        return None

    def _entries_of(self, night: str, end: int) -> list[Value]:
        entries = map(self.entry, range(1, end))
        return [entry for entry in entries if entry["night"] == night]

    def _file(self, number: int) -> str:
        return f"{self.uri}/{number:06d}.json"

    def _where(self, number: int) -> str:
        return f"{self.store.uri}/{self._file(number)}"
