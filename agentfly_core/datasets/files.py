"""Problems from files: a JSON array, JSON lines or parquet."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agentfly_core.formats import hashing, strict_json
from agentfly_core.formats.json_fault import json_fault
from agentfly_core.formats.text import did_you_mean
from agentfly_core.records.dataset import BadRow
from agentfly_core.records.trajectory import Problem

QUESTIONS = ("prompt", "question", "instruction", "problem")
MAX_BYTES = 2**31
FIRST = 100
"""So many rows are looked at before any work."""
Rows = list[Problem | BadRow]


def files(
    seed: int,
    train: int,
    validation: int,
    test: int,
    train_file: str,
    validation_file: str = "",
    test_file: str = "",
    needs: tuple[str, ...] = (),
) -> dict[str, Rows]:
    """Problems for each split, drawn from its file; one without a file is cut from the train file.

    A row's question is the first of prompt, question, instruction and problem; its `id` may be left
    out; all other fields become facts, of which none that tools and rewards `needs` may be missing
    or null. Rows that are no problems are returned as BadRow, numbered from 1, beside the problems.
    Raises ValueError for files that cannot be read or hold fewer problems than asked for.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    sources = {
        "train": train_file,
        "validation": validation_file or train_file,
        "test": test_file or train_file,
    }
    built: dict[str, Rows] = {}
    for source in dict.fromkeys(sources.values()):
        rows = list(read(Path(source), needs))
        wanted = {split: sizes[split] for split in sizes if sources[split] == source}
        if (total := sum(wanted.values())) > len(rows):
            asked = ", ".join(f"data.{split}={size}" for split, size in wanted.items())
            raise ValueError(
                f"{source} has {len(rows)} rows, {total} problems are asked for ({asked})."
            )
        problems: Rows = [row for row in rows if isinstance(row, Problem)]
        random.Random(seed).shuffle(problems)
        for split, size in reversed(wanted.items()):
            built[split], problems = problems[:size], problems[size:]
        # The first split has the bad rows, and so lacks the problems that they are not.
        built[next(iter(wanted))] += [row for row in rows if isinstance(row, BadRow)]
    return built


def require_fields(
    train_file: str,
    validation_file: str = "",
    test_file: str = "",
    needs: tuple[str, ...] = (),
) -> None:
    """Look at the first rows of the files, before any work.

    Raises ValueError for a file that is not there, and where none of these rows has a question, or
    a fact that tools and rewards `needs`.
    """
    for source in dict.fromkeys(filter(None, (train_file, validation_file, test_file))):
        fields = first_fields(Path(source))
        if fields.isdisjoint(QUESTIONS):
            raise ValueError(
                f"{source} has no {' or '.join(QUESTIONS)} in its first {FIRST} rows; "
                f"it has {', '.join(sorted(fields)) or 'no fields'}. Rename the one with the "
                "question."
            )
        if missing := [name for name in needs if name not in fields]:
            raise ValueError(
                f"needs: {source} has no field {missing[0]!r} in its first {FIRST} rows."
                f"{did_you_mean(missing[0], sorted(fields))}"
            )


def first_fields(path: Path) -> set[str]:
    """The fields of a file's first rows; of those in parquet, of all."""
    _require_file(path)
    if path.suffix == ".parquet":
        with _unreadable_parquet(path):
            return {*pq.read_schema(path).names}
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8", errors="replace") as lines:
            rows = [_value(line) for line in islice(lines, FIRST)]
    else:
        rows = [row for _, row in islice(_rows(path), FIRST)]
    return {field for row in rows if isinstance(row, Mapping) for field in row}


def read(path: Path, needs: Sequence[str] = ()) -> Iterator[Problem | BadRow]:
    """The rows of a file; an `id` or, where there are no ids, a question that comes again is a
    BadRow.
    """
    seen: dict[str, int] = {}
    for number, row in _rows(path):
        problem = _problem(row, needs)
        if isinstance(problem, str):
            yield BadRow(path.name, number, problem)
        elif problem.id in seen:
            fault = (
                f"row {seen[problem.id]} has its id, or its question where neither has an `id`: "
                "give each one"
            )
            yield BadRow(path.name, number, fault)
        else:
            seen[problem.id] = number
            yield problem


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The numbers and values of a file's rows; a ValueError for a row that is no JSON."""
    _require_file(path)
    match path.suffix:
        case ".jsonl":
            lines = enumerate(_text(path).split("\n"), 1)
            return ((number, _value(line)) for number, line in lines if line.strip())
        case ".parquet":
            with _unreadable_parquet(path):
                return enumerate(pq.read_table(path).to_pylist(), 1)
        case ".json":
            values = _value(_text(path))
            if not isinstance(values, list):
                found = values if isinstance(values, ValueError) else type(values).__name__
                raise ValueError(f"{path} is no JSON array: {found}")
            return enumerate(values, 1)
    raise ValueError(
        f"Got the data file {path}, expected one that ends in .json, .jsonl or .parquet."
    )


def _require_file(path: Path) -> None:
    if not os.path.isfile(path):
        raise ValueError(f"There is no data file {path} (looked in {Path.cwd()}).")


@contextmanager
def _unreadable_parquet(path: Path) -> Iterator[None]:
    """A ValueError of all that a damaged file makes pyarrow raise within the block."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} is no parquet file with rows that can be read: {error}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None


def _value(text: str) -> Any:
    try:
        return strict_json.parse(text, max_bytes=MAX_BYTES)
    except ValueError as error:
        return error


def _problem(row: Any, needs: Sequence[str]) -> Problem | str:
    """The problem of a row, or what is wrong with it."""
    if isinstance(row, ValueError):
        return f"it is no JSON: {row}"
    if not isinstance(row, Mapping):
        return f"it is a {type(row).__name__}, expected an object"
    field = next((name for name in QUESTIONS if row.get(name) is not None), None)
    if field is None:
        return f"it has none of the fields {', '.join(QUESTIONS)}"
    question = row[field]
    if not isinstance(question, str) or not question.strip():
        return f"its field {field!r} is {question!r:.80}, expected text"
    if missing := [name for name in needs if row.get(name) is None]:
        return f"it has no {', '.join(map(repr, missing))}"
    name = row.get("id")
    if name is not None and not isinstance(name, str | int):
        return f"its field 'id' is {name!r:.80}, expected text or an integer"
    facts = {key: row[key] for key in row if key not in (field, "id")}
    for key, fact in facts.items():
        if fault := json_fault(fact):
            return f"its field {key!r} cannot be written as JSON: {key}{fault}"
    return Problem(hashing.short(question) if name is None else str(name), question, facts)
