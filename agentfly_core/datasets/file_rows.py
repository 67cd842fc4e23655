"""Read the rows of a data file. Its format is a JSON array, JSON lines, parquet or CSV."""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import nearest

MAX_BYTES = 2**31
INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+(\.\d+)?")
"""Matches the names that pandas gives to a column with the index of a DataFrame."""
FIRST = 100
"""How many rows at the start of a file are checked before a run starts."""


def rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each row of a file. The header of a CSV file is row 1.

    If a row cannot be read, its value is a ValueError object. Raises ValueError if the file is
    missing or cannot be read.
    """
    _require_file(path)
    match path.suffix:
        case ".jsonl":
            # not `splitlines`, which also splits at U+2028, a character that JSON texts may contain
            lines = enumerate(_text(path).split("\n"), 1)
            return ((number, _value(line)) for number, line in lines if line.strip())
        case ".csv":
            return _table(path, _text(path))
        case ".parquet":
            return enumerate(_parquet(path), 1)
        case ".json":
            values = _value(_text(path))
            if not isinstance(values, list):
                got = values if isinstance(values, ValueError) else type(values).__name__
                raise ValueError(f"{path} is no JSON array: {got}")
            return enumerate(values, 1)
    raise ValueError(
        f"Got the data file {path}, expected a name that ends in .json, .jsonl, .parquet or .csv."
    )


def first_fields(path: Path) -> set[str]:
    """Return the names of the fields in the first 100 rows of a file.

    Raises ValueError if the file is missing or cannot be read.
    """
    first = (row for _, row in islice(rows(path), FIRST))
    return {field for row in first if isinstance(row, Mapping) for field in row}


def _table(path: Path, text: str) -> Iterator[tuple[int, dict[str, str | None] | ValueError]]:
    """Yield the number and the value of each row of a CSV file. The header is row 1.

    Cells are texts, or None if empty. A first column without a name (the index, in files written by
    pandas) is named `Unnamed: 0`, as in pandas. Raises ValueError if the file is not valid CSV or
    its header is wrong.
    """
    # the default limit is 131,072 characters per cell
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(lines, [])
        if header[:1] == [""]:
            header[0] = "Unnamed: 0"
        if "" in header or (twice := [name for name, n in Counter(header).items() if n > 1]):
            what = f"two columns {twice[0]!r}" if "" not in header else "a column without a name"
            raise ValueError(
                f"{path} has {what}: give each column a name of its own in the first row."
            )
        for number, cells in enumerate(lines, 2):
            if len(cells) == len(header):
                yield number, {n: cell or None for n, cell in zip(header, cells, strict=True)}
            elif cells:
                yield number, ValueError(f"got {len(cells)} cells for {len(header)} columns")
    except csv.Error as error:
        raise ValueError(f"{path} is not valid CSV at line {lines.line_num}: {error}.") from None


def _require_file(path: Path) -> None:
    if not os.path.isfile(path):
        folder = path.parent
        beside = [str(folder / name) for name in os.listdir(folder)] if folder.is_dir() else []
        raise ValueError(
            f"There is no data file {path} (looked in {Path.cwd()}).{nearest(str(path), beside)}"
        )


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file. Raises ValueError if the file is damaged."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read as a parquet file: {error}") from None


def _text(path: Path) -> str:
    try:
        # utf-8-sig, because spreadsheets write a byte order mark; in CSV, line ends are kept
        with path.open(encoding="utf-8-sig", newline="" if path.suffix == ".csv" else None) as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None


def _value(text: str) -> Any:
    try:
        return strict_json.parse(text, max_bytes=MAX_BYTES)
    except ValueError as error:
        return error
