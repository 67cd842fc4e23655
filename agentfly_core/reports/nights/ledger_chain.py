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

    def read(self) -> Sequence[Value]:
        """Read all entries, missing ones restored; raises Damaged for a damaged entry, a gap and a
        broken chain.
        """
        entries, before = list[Value](), ""
        for number in range(1, self._length() + 1):
            entry = self._entry(number)
            if (entry["number"], entry["before"]) != (number, before):
                raise Damaged(
                    f"{self._where(number)} does not follow the entry before it. Put both back "
                    "from a copy."
                )
            entries.append(entry)
            before = digest(entry)
        return entries

    def append(self, value: Mapping[str, JSON]) -> Value:
        """Append an entry; two processes may do so at the same time."""
        while True:
            entries = self.read()
            number, before = len(entries) + 1, digest(entries[-1]) if entries else ""
            entry: Value = {**value, "number": number, "before": before}
            # A retried write is refused if the first one succeeded but its answer was lost.
            if self.store.create_json(self._file(number), entry) or self._entry(number) == entry:
                self.store.write_json(f"{self._folder}/head.json", {"number": number})
                self._copy_to_night([*entries, entry])
                return entry

    def _length(self) -> int:
        """Return the number of entries, once missing ones are restored; raises Damaged for a gap.

        Without a head the copies count too: the whole folder may be missing.
        """
        head = self._read(f"{self._folder}/head.json")  # before the names: other processes append
        names = self.store.names(self._folder)
        numbers = {int(match[1]) for name in names if (match := FILE.match(name))}
        last = max([*numbers, head["number"] if head else 0])
        if head and len(numbers) == last:
            return last
        copies = self._copies()
        last = max([last, *copies])
        for number in copies.keys() - numbers:
            if self.store.create_json(self._file(number), copies[number]):
                name = RunLayout(copies[number]["night"]).night
                logger.warning("%s was missing and is restored from %s.", self._where(number), name)
        missing = sorted({*range(1, last + 1)} - numbers - copies.keys())
        if lost := [n for n in missing if self.store.read_json(self._file(n)) is None]:
            raise Damaged(
                f"The ledger of {self.experiment} has a gap of {len(lost)} in {last} entries: "
                f"{', '.join(map(self._where, lost))}. No run has a copy. Put them back from a "
                "copy of the store, or give the experiment another name to begin anew."
            )
        return last

    def _copies(self) -> dict[int, Value]:
        """Read the entries that runs of the experiment keep, by number."""
        records = [self._read(RunLayout(run).night) for run in self.store.names("runs")]
        entries = [
            entry
            for record in records
            if record and record["experiment"] == self.experiment
            for entry in record["entries"]
        ]
        return {entry["number"]: entry for entry in entries}

    def _copy_to_night(self, entries: Sequence[Value]) -> None:
        """Copy all entries of the last one's night to its run, if it has one."""
        night = entries[-1]["night"]
        layout = RunLayout(night)
        if Path(layout.record).name in self.store.names(layout.uri):
            of_night: list[JSON] = [entry for entry in entries if entry["night"] == night]
            self.store.write_json(
                layout.night, {"experiment": self.experiment, "entries": of_night}
            )

    def _read(self, uri: str) -> Value | None:
        """Read a file that can be recreated; a damaged file counts as missing."""
        with suppress(Damaged):
            value: Value | None = self.store.read_json(uri)
            return value
        return None

    def _entry(self, number: int) -> Value:
        """Read an entry; raises Damaged where it is missing or damaged."""
        entry: Value | None = self.store.read_json(self._file(number))
        if entry is None:
            raise Damaged(f"{self._where(number)} is missing.")
        return entry

    @property
    def _folder(self) -> str:
        return f"nights/{self.experiment}"

    def _file(self, number: int) -> str:
        return f"{self._folder}/{number:06d}.json"

    def _where(self, number: int) -> str:
        return f"{self.store.uri}/{self._file(number)}"
