"""Problems from data files. The format of a file is a JSON array, JSON lines, parquet or CSV."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from agentfly_core.datasets.columns import PROMPTS, TOOLS, prompt_of, renamed, tools_of
from agentfly_core.datasets.file_rows import FIRST, INDEX, first_fields, rows
from agentfly_core.records.dataset import BadRow, Repeated, Rows, content
from agentfly_core.records.messages import plain
from agentfly_core.records.trajectory import Message, Problem
from agentfly_core.system.formats.hashing import digest, short
from agentfly_core.system.formats.json_value import json_fault
from agentfly_core.system.formats.text import did_you_mean, shown

Columns = dict[str, str] | None
"""Old and new names of columns: `{"solution": "answer"}`."""


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
    """Make the problems of each split from a file. A split without its own file uses `train_file`.

    Fields of a row:

    - The prompt is in the first field of PROMPTS that the row has, such as `question`. The prompt
      is a text, or a list of messages. If the last message is a reply, it is left out.
    - `tools` selects the tools of the problem.
    - `id` is optional.
    - All other fields become facts (entries of `Problem.facts`), except an index that pandas wrote.
    - The fields in `needs` must not be missing or null.

    The result also has a BadRow for each unusable row, and a Repeated for each row with the same
    question and facts as another row. Both are in the first split that uses the file.

    A row is used in only one split, even if several splits have the row in their files. Problems
    are drawn first for the test split, then for the validation split, and last for the training
    split. Rows are numbered from 1. In CSV, the header is row 1.

    Raises ValueError if a file cannot be read, if there are too few problems, or if two different
    rows have the same id.
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
    # the test split is drawn first, so it does not change if more training problems are drawn
    for split in reversed(sizes):
        drawn = sources[names[split]].draw(sizes[split], elsewhere)
        elsewhere |= {*map(content, drawn)}
        built[split] = [*drawn]
    for name, source in sources.items():
        source.require({split: sizes[split] for split in sizes if names[split] == name}, built)
        # bad rows count as problems of the first split
        built[next(split for split in sizes if names[split] == name)] += source.bad
    return built


class _Source:
    """The problems of a file in random order. Each call of `draw` returns the next problems."""

    def __init__(
        self, path: Path, needs: Sequence[str], columns: Columns, draw: random.Random
    ) -> None:
        read_rows = list(read(path, needs, columns))
        self.path, self.size = path, len(read_rows)
        self.bad = [row for _, row in read_rows if isinstance(row, BadRow)]
        self._left = [(number, row) for number, row in read_rows if isinstance(row, Problem)]
        self.contents = {problem.id: content(problem) for _, problem in self._left}
        # shuffled, because files are often sorted by difficulty or topic
        draw.shuffle(self._left)

    def draw(self, size: int, elsewhere: set[str]) -> list[Problem]:
        """Return the next `size` problems, or all remaining problems if there are fewer.

        `elsewhere` has the contents (see `dataset.content`) of problems in other splits. Problems
        with these contents are skipped.
        """
        again = {n for n, problem in self._left if content(problem) in elsewhere}
        fault = "another split has a row with this question and facts"
        self.bad += [Repeated(self.path.name, number, fault) for number in sorted(again)]
        left = [(n, problem) for n, problem in self._left if n not in again]
        self._left = left[size:]
        return [problem for _, problem in left[:size]]

    def require(self, wanted: Mapping[str, int], built: Mapping[str, Rows]) -> None:
        """Raise ValueError if the file has too few rows for the splits in `wanted`.

        `wanted` has the size of each split. `built` has the problems that were drawn for each
        split. Unusable rows count as rows, but rows that repeat another problem do not count.
        """
        repeated = sum(isinstance(row, Repeated) for row in self.bad)
        missing = sum(size - len(built[split]) for split, size in wanted.items())
        if missing > len(self.bad) - repeated:
            sizes = ", ".join(f"data.{split}={size}" for split, size in wanted.items())
            less = (
                f", {repeated} of which repeat another row's question and facts" if repeated else ""
            )
            raise ValueError(
                f"{self.path} has {self.size} rows{less}, but {sum(wanted.values())} problems are "
                f"needed ({sizes}). Lower these settings, or add rows."
            )


def _require_distinct_ids(sources: Mapping[str, _Source], columns: Mapping[str, str]) -> None:
    """Raise ValueError if two files use the same id, such as a row number, for different rows."""
    for (one, first), (other, second) in combinations(sources.items(), 2):
        for name in first.contents.keys() & second.contents.keys():
            if first.contents[name] == second.contents[name]:
                continue
            column = next((key for key, read_as in columns.items() if read_as == "id"), "id")
            raise ValueError(
                f"{one} and {other} use the id {name!r} for different rows. Set `columns: "
                f"{{{column}: row}}`, so that no ids are read from the column {column}. Ids are "
                "then computed from question and facts."
            )


def require_fields(
    train_file: str,
    validation_file: str = "",
    test_file: str = "",
    needs: tuple[str, ...] = (),
    columns: Columns = None,
) -> None:
    """Check the names of the fields in the first rows of the files before a run starts.

    Raises ValueError if a file is missing. Also raises ValueError if all first rows of a file lack
    a required field. The required fields are one of PROMPTS (such as `question`), all fields in
    `needs`, and all keys (old names) of `columns`.
    """
    for source in dict.fromkeys(filter(None, (train_file, validation_file, test_file))):
        fields = first_fields(Path(source))
        named = {(columns or {}).get(field, field) for field in fields}
        for key, wanted, available in (("columns", columns or (), fields), ("needs", needs, named)):
            if missing := [name for name in wanted if name not in available]:
                raise ValueError(
                    f"{key}: {source} lacks the field {missing[0]!r} in its first {FIRST} rows."
                    f"{did_you_mean(missing[0], sorted(available))}"
                )
        if named.isdisjoint(PROMPTS):
            raise ValueError(
                f"{source} has no field {' or '.join(PROMPTS)} in its first {FIRST} rows "
                f"(fields: {', '.join(sorted(named)) or 'none'}). Rename the field with the "
                "question: `columns: {text: question}` reads the field `text` as the question."
            )


def read(
    path: Path, needs: Sequence[str] = (), columns: Columns = None
) -> Iterator[tuple[int, Problem | BadRow]]:
    """Yield the number and the problem of each row of a file.

    For an unusable row, yield its number and a BadRow. For a row with the same problem as an
    earlier row, yield its number and a Repeated, which is a kind of BadRow. A row without a value
    for a field in `needs` is unusable. `columns` maps old to new names of fields.
    """
    seen: dict[str, tuple[int, Problem]] = {}
    for number, row in rows(path):
        try:
            problem = _problem(row, needs, columns or {})
        except ValueError as error:
            yield number, BadRow(path.name, number, str(error))
            continue
        first, other = seen.setdefault(problem.id, (number, problem))
        if first == number:
            yield number, problem
        elif other == problem:
            yield number, Repeated(path.name, number, f"row {first} is the same")
        else:
            fault = f"row {first} has the same id {problem.id!r}: give each row an id of its own"
            yield number, BadRow(path.name, number, fault)


def _problem(row: Any, needs: Sequence[str], columns: Mapping[str, str]) -> Problem:
    """Convert a row to a problem. Raises ValueError if the row is unusable."""
    row = renamed(row, columns)
    field, prompt = prompt_of(row)
    question, opening, listed = prompt.question, prompt.opening, tools_of(row)
    messages = () if opening == (Message("user", question),) else opening
    tools = None if listed is None else tuple(tool.name for tool in listed)
    if missing := [name for name in needs if row.get(name) is None]:
        raise ValueError(f"the row has no value for {', '.join(map(repr, missing))}")
    name = row.get("id")
    if name is not None and not isinstance(name, str | int):
        raise ValueError(f"the field 'id' is {shown(name)}, expected text or an integer")
    unread = {field, "id", *([] if tools is None else [TOOLS])}
    facts = {key: row[key] for key in row if key not in unread and not INDEX.fullmatch(key)}
    for key, fact in facts.items():
        if fault := json_fault(fact):
            raise ValueError(f"the field {key!r} {fault}")
    if name is None:
        further = [digest([*map(plain, messages)])] if messages else []
        further += [] if tools is None else [digest(tools)]
        name = short(question, digest(facts), *further)
    return Problem(str(name), question, facts, messages=messages, tools=tools)
