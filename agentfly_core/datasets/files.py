"""Problems from files: a JSON array, JSON lines, parquet or CSV."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from agentfly_core.datasets.file_rows import FIRST, INDEX, first_fields, rows
from agentfly_core.records.dataset import BadRow, Repeated, Rows, spaced_alike
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats.hashing import digest, short
from agentfly_core.system.formats.json_value import json_fault
from agentfly_core.system.formats.text import did_you_mean

QUESTIONS = ("prompt", "question", "instruction", "problem", "messages")
Columns = dict[str, str] | None
"""New names of columns: `{"solution": "answer"}`."""


def files(
    seed: int,
    train: int,
    validation: int,
    test: int,
    train_file: str,
    validation_file: str = "",
    test_file: str = "",
    needs: tuple[str, ...] = (),
    columns: Columns = None,
) -> dict[str, Rows]:
    """Problems for each split, drawn from its file, by default from the train file.

    A row's question is the first of prompt, question, instruction, problem and messages, a text or
    chat messages; Alpaca's `input` follows its `instruction`. The `id` is optional. All other
    fields but the index of pandas become facts; none in `needs` may be missing or null. The train
    split also has a BadRow for each unusable row, numbered from 1 (in CSV the header is row 1), and
    a Repeated for each repeated question with its facts; test keeps it before validation, then
    train. Raises ValueError for unreadable files, too few problems, and ids of different rows.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    names = {
        "train": train_file,
        "validation": validation_file or train_file,
        "test": test_file or train_file,
    }
    sources = {
        name: _Source(Path(name), needs, columns, random.Random(seed)) for name in names.values()
    }
    _require_distinct_ids(sources, columns or {})
    built: dict[str, Rows] = {}
    elsewhere: set[str] = set()
    for split in reversed(sizes):
        drawn = sources[names[split]].draw(sizes[split], elsewhere)
        elsewhere |= {*map(_content, drawn)}
        built[split] = [*drawn]
    for name, source in sources.items():
        source.require({split: sizes[split] for split in sizes if names[split] == name}, built)
        # bad rows replace problems of the first split
        built[next(split for split in sizes if names[split] == name)] += source.bad
    return built


class _Source:
    """A file with problems in random order."""

    def __init__(
        self, path: Path, needs: Sequence[str], columns: Columns, draw: random.Random
    ) -> None:
        read_rows = list(read(path, needs, columns))
        self.path, self.size = path, len(read_rows)
        self.bad = [row for _, row in read_rows if isinstance(row, BadRow)]
        self._left = [(number, row) for number, row in read_rows if isinstance(row, Problem)]
        self.contents = {problem.id: _content(problem) for _, problem in self._left}
        draw.shuffle(self._left)

    def draw(self, size: int, elsewhere: set[str]) -> list[Problem]:
        """Up to `size` problems; removes problems with contents in `elsewhere`."""
        again = {n for n, problem in self._left if _content(problem) in elsewhere}
        fault = "another split has its question and facts"
        self.bad += [Repeated(self.path.name, number, fault) for number in sorted(again)]
        left = [(n, problem) for n, problem in self._left if n not in again]
        self._left = left[size:]
        return [problem for _, problem in left[:size]]

    def require(self, wanted: Mapping[str, int], built: Mapping[str, Rows]) -> None:
        """Raise ValueError for too few problems; bad rows are reported elsewhere."""
        repeated = sum(isinstance(row, Repeated) for row in self.bad)
        missing = sum(size - len(built[split]) for split, size in wanted.items())
        if missing > len(self.bad) - repeated:
            sizes = ", ".join(f"data.{split}={size}" for split, size in wanted.items())
            less = f", {repeated} of which repeat question and facts of another" if repeated else ""
            raise ValueError(
                f"{self.path} has {self.size} rows{less}, {sum(wanted.values())} problems are "
                f"asked for ({sizes})."
            )


def _content(problem: Problem) -> str:
    """Digest of the facts and the question without spacing, which splits must not share."""
    return digest([spaced_alike(problem.prompt), problem.facts])


def _require_distinct_ids(sources: Mapping[str, _Source], columns: Mapping[str, str]) -> None:
    """Raise ValueError for an id of different rows in two files, such as a row number."""
    for (one, first), (other, second) in combinations(sources.items(), 2):
        for name in first.contents.keys() & second.contents.keys():
            if first.contents[name] == second.contents[name]:
                continue
            column = next((key for key, read_as in columns.items() if read_as == "id"), "id")
            raise ValueError(
                f"{one} and {other} both have the id {name!r}, for different rows: ids are unique "
                f"in all files. Read that column as a fact, `columns: {{{column}: row}}`; then ids "
                "are made of question and facts."
            )


def require_fields(
    train_file: str,
    validation_file: str = "",
    test_file: str = "",
    needs: tuple[str, ...] = (),
    columns: Columns = None,
) -> None:
    """Check the first rows of the files before any work.

    Raises ValueError for a missing file, and if none of these rows has a question, a fact of
    `needs` or a column of `columns`.
    """
    for source in dict.fromkeys(filter(None, (train_file, validation_file, test_file))):
        fields = first_fields(Path(source))
        named = renamed(fields, columns)
        for key, wanted, available in (("columns", columns or (), fields), ("needs", needs, named)):
            if missing := [name for name in wanted if name not in available]:
                raise ValueError(
                    f"{key}: {source} lacks the field {missing[0]!r} in its first {FIRST} rows."
                    f"{did_you_mean(missing[0], sorted(available))}"
                )
        if named.isdisjoint(QUESTIONS):
            raise ValueError(
                f"{source} has no {' or '.join(QUESTIONS)} in its first {FIRST} rows; "
                f"it has {', '.join(sorted(named)) or 'no fields'}. Rename the field with the "
                "question by `columns`, such as {text: question}."
            )


def renamed(fields: Iterable[str], columns: Columns) -> set[str]:
    """The fields of a file after renaming."""
    return {(columns or {}).get(field, field) for field in fields}


def read(
    path: Path, needs: Sequence[str] = (), columns: Columns = None
) -> Iterator[tuple[int, Problem | BadRow]]:
    """Numbered rows of a file: problems, BadRows, and Repeated for equal rows."""
    seen: dict[str, tuple[int, Problem]] = {}
    for number, row in rows(path):
        problem = _problem(row, needs, columns or {})
        if isinstance(problem, str):
            yield number, BadRow(path.name, number, problem)
            continue
        first, other = seen.setdefault(problem.id, (number, problem))
        if first == number:
            yield number, problem
        elif other == problem:
            yield number, Repeated(path.name, number, f"row {first} is the same")
        else:
            fault = f"row {first} has the same id {problem.id!r}: give each row an id of its own"
            yield number, BadRow(path.name, number, fault)


def _problem(row: Any, needs: Sequence[str], columns: Mapping[str, str]) -> Problem | str:
    """The problem of a row, or its fault."""
    if isinstance(row, ValueError):
        return f"it cannot be read: {row}"
    if not isinstance(row, Mapping):
        return f"it is a {type(row).__name__}, expected an object"
    if twice := [key for key, name in columns.items() if key in row and name in row]:
        return f"its fields {twice[0]!r} and {columns[twice[0]]!r} are both {columns[twice[0]]!r}"
    row = {columns.get(key, key): value for key, value in row.items()}
    field = next((name for name in QUESTIONS if row.get(name) is not None), None)
    if field is None:
        return f"it has none of the fields {', '.join(QUESTIONS)}"
    question = row[field] if isinstance(row[field], str) else _prompt_of(row[field])
    if question is None or not question.strip():
        return f"its field {field!r} is {row[field]!r:.80}, expected text or messages of one user"
    if field == "instruction" and (more := row.get("input")) is not None:
        if not isinstance(more, str):
            return f"its field 'input' is {more!r:.80}, expected text behind the instruction"
        question = "\n\n".join(filter(None, (question, more.strip())))
    if missing := [name for name in needs if row.get(name) is None]:
        return f"it has no {', '.join(map(repr, missing))}"
    name = row.get("id")
    if name is not None and not isinstance(name, str | int):
        return f"its field 'id' is {name!r:.80}, expected text or an integer"
    facts = {key: row[key] for key in row if key not in (field, "id") and not INDEX.fullmatch(key)}
    for key, fact in facts.items():
        if fault := json_fault(fact):
            return f"its field {key!r} {fault}"
    return Problem(short(question, digest(facts)) if name is None else str(name), question, facts)


def _prompt_of(messages: Any) -> str | None:
    """The prompt of an optional system and a user message, without a later assistant message."""
    try:
        turns = [(message["role"], message["content"]) for message in messages]
    except (TypeError, KeyError, IndexError):
        return None
    if turns and turns[-1][0] == "assistant":
        turns.pop()
    texts = [text for _, text in turns]
    if [role for role, _ in turns] not in (["user"], ["system", "user"]):
        return None
    return "\n\n".join(texts) if all(isinstance(text, str) for text in texts) else None
