"""Datasets of problems: built, checked and stored in three splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.config.experiment import SPLITS, Data, Science
from agentfly_core.config.import_path import construct, load
from agentfly_core.formats.text import sentence
from agentfly_core.records.parquet import count_rows, read_problems, write_problems
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.files import write_json


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of a data file that is not a valid problem:
    `BadRow("train.jsonl", 17, "field 'question' is missing")`.
    """

    source: str
    row: int
    fault: str

    def __str__(self) -> str:
        return f"{self.source}, row {self.row}: {self.fault}"


def prepare(science: Science, folder: Path, quarantine: Path) -> None:
    """Build and check the splits and write them into `folder`, one parquet file each.

    Rows that are no problems go to the `quarantine` file; more than `data.tolerate_bad_rows` of
    them, a repeated id or a problem in two splits raise ValueError.
    """
    built = build(science.data, science.of_data.seed)
    bad = [row for split in SPLITS for row in built[split] if isinstance(row, BadRow)]
    if bad:
        write_json(quarantine, [str(row) for row in bad])
    if len(bad) > science.data.tolerate_bad_rows:
        first = sentence("; ".join(map(str, bad[:5])))
        raise ValueError(
            f"{len(bad)} rows of the data cannot be used (tolerated: "
            f"{science.data.tolerate_bad_rows}), first {first} All are listed in {quarantine}; "
            "mend them or raise data.tolerate_bad_rows."
        )
    splits = {split: [p for p in built[split] if isinstance(p, Problem)] for split in SPLITS}
    _check(splits)
    for split, problems in splits.items():
        write_problems(folder / f"{split}.parquet", problems)
    write_json(folder / "report.json", {split: len(problems) for split, problems in splits.items()})


def build(data: Data, seed: int) -> Mapping[str, Sequence[Problem | BadRow]]:
    """Call the experiment's builder; raises ValueError for a setting that it does not have."""
    given = {"seed": seed, "train": data.train, "validation": data.validation, "test": data.test}
    built: Mapping[str, Sequence[Problem | BadRow]] = construct(
        load(data.use), data.settings, given
    )
    if set(built) != set(SPLITS):
        raise ValueError(
            f"{data.use} returned the splits {sorted(built)}, expected {sorted(SPLITS)}."
        )
    return built


def split(folder: Path, name: str, rows: Sequence[int] | None = None) -> list[Problem]:
    """The problems of one split of a prepared dataset, all or those of these rows."""
    return read_problems(folder / f"{name}.parquet", rows)


def size_of_split(folder: Path, name: str) -> int:
    """How many problems a split has."""
    return count_rows(folder / f"{name}.parquet")


def splits_played(science: Science) -> tuple[str, ...]:
    """The splits that a run plays: validation only where it is evaluated on that meanwhile."""
    return SPLITS if science.evaluate.every else ("train", "test")


def shards_of_split(science: Science, data: Path, name: str) -> int:
    """How many shards the held-out evaluation on a split of a prepared dataset has."""
    return -(-size_of_split(data, name) * science.evaluate.episodes // science.rollout.shard)


def _check(splits: Mapping[str, Sequence[Problem]]) -> None:
    seen: dict[str, str] = {}
    for name, problems in splits.items():
        if not problems and name != "validation":
            raise ValueError(f"The {name} split is empty; raise data.{name} or give more data.")
        for problem in problems:
            if problem.id in seen:
                raise ValueError(
                    f"The problem id {problem.id!r} is in {seen[problem.id]} and in {name}; ids "
                    "are unique."
                )
            seen[problem.id] = name
