"""Metrics, parameters and tags in batches: an entry that MLflow refuses takes no other along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.foreign_names import is_cut, storable
from agentfly_core.system.formats.text import shown
from agentfly_core.tracking.outbox import EntriesRefused, cause

EntryKind = Literal["metrics", "params", "tags"]
SIZES: dict[EntryKind, int] = {"metrics": 1000, "params": 100, "tags": 100}
"""Entries that MLflow accepts at once."""
NOUNS: dict[EntryKind, str] = {"metrics": "metric", "params": "setting", "tags": "tag"}
LATER = ("TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED")


@dataclass(frozen=True, slots=True)
class Entry:
    """A metric, a parameter or a tag of MLflow, with the name and value before escaping.

    `Entry(Metric("pass_x401", 0.5, 0, 1), ("pass@1", "0.5"))`
    """

    entity: Any
    original: tuple[str, str]

    def cut(self) -> Iterator[tuple[str, str]]:
        """The key and the value where they are cut, each with its original."""
        sent = (self.entity.key, str(self.entity.value))
        return ((s, o) for s, o in zip(sent, self.original, strict=True) if s != o and is_cut(s))


class Sink(Protocol):
    """One run in MLflow."""

    client: Any
    run_id: str

    def answers(self) -> bool:
        """Whether MLflow answers at all."""


def log_entries(sink: Sink, kind: EntryKind, entries: Sequence[Entry]) -> None:
    """Log entries of one kind, and the original of each cut text as `originals/DIGEST.json`.

    Raises EntriesRefused for entries that MLflow refuses alone, too, once the others are sent.
    """
    refused: list[str] = []
    for start in range(0, len(entries), SIZES[kind]):
        batch = entries[start : start + SIZES[kind]]
        failures = _failures(sink, kind, batch)
        if len(failures) == len(batch) and not all(_is_permanent(error) for _, error in failures):
            raise failures[0][1]
        refused += [
            f"the {NOUNS[kind]} {shown(entry.original[0])} ({cause(error)})"
            for entry, error in failures
        ]
    for sent, original in sorted({pair for entry in entries for pair in entry.cut()}):
        texts = {"sent": sent, "original": storable(original)}
        sink.client.log_dict(sink.run_id, texts, f"originals/{hashing.short(sent)}.json")
    if refused:
        raise EntriesRefused(refused)


def _failures(sink: Sink, kind: EntryKind, batch: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
    """Log entries at once, or where MLflow refuses that, each half; return the failed ones."""
    try:
        sink.client.log_batch(sink.run_id, **{kind: [entry.entity for entry in batch]})
    except Exception as error:  # MLflow and its client raise many types
        if not sink.answers() or getattr(error, "error_code", "") in LATER:
            raise
        if len(batch) == 1:
            return [(batch[0], error)]
        middle = len(batch) // 2
        first = _failures(sink, kind, batch[:middle])
        return first + _failures(sink, kind, batch[middle:])
    return []


def _is_permanent(error: Exception) -> bool:
    """Whether MLflow refuses this entry each time."""
    return getattr(error, "error_code", "") == "INVALID_PARAMETER_VALUE"
