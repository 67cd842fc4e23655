"""Spoilt data files: refused with the row, or split right."""

import json
import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentfly_core.config.episodes import SPLITS
from agentfly_core.config.experiment import Settings
from agentfly_core.records import dataset
from agentfly_core.records.trajectory import Problem
from tests.support.random_values import Values

SEED = 15
WORDS = ("", " ", "What is 2+2?", "é💥", "\0", "\ud800", "\u202e", "x" * 3000, "null", "NaN", "1")
NUMBERS = (0, 1, -1, 2**63, 10**99, 10**101, 0.5, 1e308, float("nan"), float("inf"))
FIELDS = (
    "prompt",
    "question",
    "instruction",
    "problem",
    "id",
    "answer",
    "facts",
    "",
    "\0",
    "Prompt",
    "ID",
)


# All that JSON can hold, and some numbers that it cannot.
value = Values([NUMBERS, WORDS], lambda draw: draw.choice(FIELDS), sizes=3)


def rows(draw: random.Random) -> list[Any]:
    """Eight to fourteen rows of which none to three are spoilt."""
    drawn: list[Any] = []
    for number in range(draw.randrange(8, 15)):
        row: dict[str, Any] = {
            "question": f"What is {number} + {number}?",
            "answer": str(2 * number),
        }
        drawn.append(
            row
            | (
                {"id": draw.choice((number, str(number), f"sum-{number}"))}
                if draw.random() < 0.5
                else {}
            )
        )
    for _ in range(draw.randrange(4)):
        place = draw.randrange(len(drawn))
        if isinstance(row := drawn[place], dict) and draw.random() < 0.7:
            drawn[place] = {**row, draw.choice(FIELDS): value(draw)}
        else:
            drawn[place] = draw.choice((value(draw), drawn[draw.randrange(len(drawn))]))
    return drawn


def json_lines(draw: random.Random, path: Path) -> None:
    """Write JSON lines, some of them no JSON, and sometimes no text."""
    lines = [json.dumps(row) for row in rows(draw)]
    for _ in range(draw.randrange(2)):
        place = draw.randrange(len(lines))
        line, cut = lines[place], draw.randrange(20)
        lines[place] = draw.choice(
            (line[:cut], line * 2, "[" * 50, "{}", "", '{"id": 1, "id": 2}', f"\ufeff{line}")
        )
    text = draw.choice(("\n", "\n", "\r\n", "\n\n")).join(lines)
    path.write_bytes(scrambled(draw, text.encode("utf-8", "surrogatepass")))


def json_array(draw: random.Random, path: Path) -> None:
    """Write a JSON array, or something else."""
    held = draw.choice((rows(draw), rows(draw), rows(draw), {"rows": rows(draw)}, value(draw)))
    path.write_bytes(scrambled(draw, json.dumps(held).encode()))


def table(draw: random.Random, path: Path) -> None:
    """Write CSV; some rows have too many cells or open quotes."""
    mappings = [row for row in rows(draw) if isinstance(row, Mapping)]
    header = [*TEXTS, *draw.sample(FIELDS, draw.randrange(3))]
    lines = [",".join(header), *(json.dumps([*map(row.get, header)])[1:-1] for row in mappings)]
    for _ in range(draw.randrange(2)):
        place, cut = draw.randrange(len(lines)), draw.randrange(20)
        lines[place] = draw.choice((lines[place][:cut], lines[place] + ",", '"', "", "a\0b,c"))
    text = draw.choice(("\n", "\r\n", "\n\n")).join(lines).replace('\\"', '""')
    path.write_bytes(scrambled(draw, text.encode("utf-8", "surrogatepass")))


def parquet(draw: random.Random, path: Path) -> None:
    """Write a table, with columns of any type."""
    mappings = [row for row in rows(draw) if isinstance(row, Mapping)]
    texts = [
        [str(row.get(name, "")).encode("utf-8", "replace").decode() for row in mappings]
        for name in TEXTS
    ]
    table = pa.table(dict(zip(TEXTS, texts, strict=True)))
    for _ in range(draw.randrange(3)):
        name, kind = draw.choice(FIELDS), draw.choice(COLUMNS)
        extra = pa.array([kind(number) for number in range(len(mappings))])
        table = (
            table.append_column(name, extra)
            if draw.random() < 0.8
            else table.add_column(0, name, extra)
        )
    pq.write_table(table, path)
    path.write_bytes(scrambled(draw, path.read_bytes()))


TEXTS = ("question", "answer")
COLUMNS = (
    str,
    float,
    lambda n: None,
    lambda n: b"\xff\x00",
    lambda n: [n],
    lambda n: {"a": n},
    lambda n: Decimal(n),
    lambda n: pd.Timestamp(n),
    lambda n: n % 2 == 0,
    lambda n: float("nan"),
    lambda n: "\0",
    lambda n: "",
)


def scrambled(draw: random.Random, content: bytes) -> bytes:
    """The content of a file, one time in five cut, or with a byte changed."""
    place, how = draw.randrange(len(content)), draw.random()
    if how < 0.05:
        return content[:place]
    if how < 0.2:
        return content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :]
    return content


WRITERS = {".jsonl": json_lines, ".json": json_array, ".parquet": parquet, ".csv": table}


def settings_with(path: Path, draw: random.Random) -> Settings:
    """An experiment on a data file, which tolerates some bad rows or none."""
    needs = draw.choice(([], [], ["answer"]))
    data: dict[str, Any] = {
        "use": "agentfly_core.datasets.files:files",
        "train_file": str(path),
        "needs": needs,
    }
    data |= {
        "train": 4,
        "validation": draw.randrange(3),
        "test": 2,
        "tolerate_bad_rows": draw.choice((0, 0, 1, 3)),
    }
    settings = {"model": "nano:calculator", "data": data, "rewards": {"a:b": 1.0}, "steps": 1}
    return Settings.model_validate({**settings, "seed": draw.randrange(9)})


def check_splits(settings: Settings, folder: Path) -> None:
    """As many problems as asked for, bad rows aside, each once, and each with a question."""
    splits = {name: dataset.split(folder, name) for name in SPLITS}
    sizes = {name: len(problems) for name, problems in splits.items()}
    missing = settings.data.train - sizes["train"]
    assert 0 <= missing <= settings.data.tolerate_bad_rows
    assert (sizes["validation"], sizes["test"]) == (settings.data.validation, settings.data.test)
    everything: list[Problem] = [problem for problems in splits.values() for problem in problems]
    assert len({problem.id for problem in everything}) == len(everything)
    assert all(problem.prompt.strip() for problem in everything)


@pytest.mark.parametrize(
    ("suffix", "count"),
    [
        (".jsonl", 120),
        (".json", 80),
        (".parquet", 80),
        (".csv", 40),
        pytest.param(".jsonl", 1000, marks=pytest.mark.long),
        pytest.param(".json", 500, marks=pytest.mark.long),
        pytest.param(".parquet", 500, marks=pytest.mark.long),
        pytest.param(".csv", 200, marks=pytest.mark.long),
    ],
)
def test_a_spoilt_data_file_is_refused_by_row_or_split_right(
    suffix: str, count: int, tmp_path: Path
) -> None:
    draw, path, refused = random.Random(SEED), tmp_path / f"rows{suffix}", 0
    for number in range(count):
        WRITERS[suffix](draw, path)
        settings, folder = settings_with(path, draw), tmp_path / str(number)
        folder.mkdir()
        try:
            dataset.prepare(settings.data, settings.data_seed, folder, tmp_path / "quarantine.json")
        except ValueError as error:
            refused += 1
            assert type(error) is ValueError, f"case {number}, {type(error).__name__}: {error}"
            assert f"rows{suffix}" in str(error) or "data.train" in str(error), (
                f"case {number}: {error}"
            )
        else:
            check_splits(settings, folder)
    assert count // 10 < refused < count
