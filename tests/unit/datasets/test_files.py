"""Problems from files of a user."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentfly_core.datasets.files import files, read
from agentfly_core.records.dataset import BadRow
from agentfly_core.records.trajectory import Problem

ROWS = [{"question": f"What is {i}+1?", "answer": str(i + 1)} for i in range(10)]


def json_array(path: Path, rows: list[Any]) -> Path:
    path.with_suffix(".json").write_text(json.dumps(rows))
    return path.with_suffix(".json")


def json_lines(path: Path, rows: list[Any]) -> Path:
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.with_suffix(".jsonl")


def parquet(path: Path, rows: list[Any]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


@pytest.mark.parametrize("write", [json_array, json_lines, parquet])
def test_every_format_gives_the_same_problems(write: Any, tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": "41+58?", "answer": "99", "levels": [1, 2]},
        {"id": "b", "question": "1+1?"},
    ]
    (_, first), (_, second) = read(write(tmp_path / "sums", rows))
    assert isinstance(first, Problem)
    assert first == Problem("a", "41+58?", {"answer": "99", "levels": [1, 2]})
    assert isinstance(second, Problem)
    assert second.id == "b"


def test_the_prompt_is_the_first_of_four_fields(tmp_path: Path) -> None:
    row = {"problem": "P", "instruction": "I", "question": "Q", "prompt": None, "answer": 3}
    ((_, problem),) = read(json_array(tmp_path / "one", [row]))
    assert isinstance(problem, Problem)
    assert problem.prompt == "Q"
    assert problem.facts == {"problem": "P", "instruction": "I", "prompt": None, "answer": 3}


def test_without_an_id_the_prompt_is_the_id(tmp_path: Path) -> None:
    one, two = (
        [row for _, row in read(json_array(tmp_path / name, rows))]
        for name, rows in (("a", ROWS), ("b", ROWS[::-1]))
    )
    assert one == two[::-1]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (
            {"answer": "99"},
            "the row has none of the fields prompt, question, instruction, problem, messages, "
            "conversations",
        ),
        ({"question": 3}, "the field 'question' is 3, expected text or messages"),
        ({"question": " "}, "the field 'question' is ' ', expected text or messages"),
        ({"question": "Q", "id": 1.5}, "the field 'id' is 1.5, expected text or an integer"),
        (["Q"], "got the type list, expected an object"),
        (
            {"question": "What is 0+1?", "id": "a"},
            "row 1 has the same id 'a': give each row an id of its own",
        ),
        (
            {"instruction": "Sum", "input": 3},
            "the field 'input' is 3, expected text to append to the instruction",
        ),
    ],
)
def test_an_invalid_row_has_its_number_and_fault(row: Any, fault: str, tmp_path: Path) -> None:
    read_rows = list(read(json_lines(tmp_path / "rows", [{"id": "a", **ROWS[0]}, *ROWS[1:3], row])))
    assert read_rows[3] == (4, BadRow("rows.jsonl", 4, fault))


def test_a_missing_field_is_refused_before_the_first_episode(
    tmp_path: Path,
) -> None:
    rows = [
        *ROWS,
        {"question": "A?", "unit": "m"},
        {"question": "B?", "answer": None},
        {"question": "C?", "answer": 0},
    ]
    path = str(json_lines(tmp_path / "rows", rows))
    built = files(0, 6, 2, 3, train_file=path, needs=("answer", "unit"))
    faults = {row.row: row.fault for row in built["train"] if isinstance(row, BadRow)}
    assert faults[11] == "the row has no value for 'answer'"
    assert faults[12] == "the row has no value for 'answer', 'unit'"
    assert faults[13] == "the row has no value for 'unit'"
    assert len(files(0, 6, 2, 3, train_file=path, needs=("answer",))["train"]) == 6 + 2


def test_an_invalid_json_line_has_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"question": "A"}\n\n{"question": "B", "x": NaN}\n{"question": "line\u2028separator"}\n'
    )
    (_, first), (_, second), (_, third) = read(path)
    assert isinstance(first, Problem)
    assert second == BadRow("rows.jsonl", 3, "it cannot be read: NaN is no JSON number")
    assert isinstance(third, Problem)


def test_a_fact_outside_of_json_is_a_fault(tmp_path: Path) -> None:
    ((_, row),) = read(
        parquet(tmp_path / "rows", [{"question": "Q", "when": datetime.date(2026, 11, 21)}])
    )
    assert isinstance(row, BadRow)
    assert row.fault.startswith("the field 'when' cannot be stored as JSON")


def test_splits_are_cut_from_one_file_without_overlap(tmp_path: Path) -> None:
    built = files(0, 5, 2, 3, train_file=str(json_array(tmp_path / "rows", ROWS)))
    assert {split: len(rows) for split, rows in built.items()} == {
        "train": 5,
        "validation": 2,
        "test": 3,
    }
    assert (
        len({row.prompt for rows in built.values() for row in rows if isinstance(row, Problem)})
        == 10
    )


def test_a_split_can_have_its_own_file(tmp_path: Path) -> None:
    train, test = json_array(tmp_path / "train", ROWS[:6]), json_lines(tmp_path / "test", ROWS[6:])
    built = files(0, 4, 2, 3, train_file=str(train), test_file=str(test))
    prompts = {
        split: {row.prompt for row in rows if isinstance(row, Problem)}
        for split, rows in built.items()
    }
    assert prompts["test"] < {row["question"] for row in ROWS[6:]}
    assert prompts["train"] | prompts["validation"] == {row["question"] for row in ROWS[:6]}


def test_the_seed_decides_which_problems_are_drawn(tmp_path: Path) -> None:
    path = str(json_array(tmp_path / "rows", ROWS))
    assert files(1, 3, 1, 1, train_file=path) == files(1, 3, 1, 1, train_file=path)
    assert files(1, 3, 1, 1, train_file=path) != files(2, 3, 1, 1, train_file=path)


def test_bad_rows_are_returned_with_the_training_split(tmp_path: Path) -> None:
    path = str(json_array(tmp_path / "rows", [*ROWS, {"answer": "99"}]))
    built = files(0, 6, 2, 3, train_file=path)
    assert [row.row for row in built["train"] if isinstance(row, BadRow)] == [11]
    assert len(built["test"]) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.json", "[]", "has 0 rows, but 3 problems are needed"),
        ("rows.json", '{"question": "Q"}', "is no JSON array: dict"),
        ("rows.json", "[1,", "is no JSON array: Expecting value"),
        ("rows.txt", "question", "ends in .json, .jsonl, .parquet or .csv"),
        ("rows.csv", "question,a,a\n", "has two columns 'a': give each column"),
        ("rows.csv", "question,\n", "has a column without a name"),
        ("rows.csv", 'question\n"1+1?\n', r"is not valid CSV at line 2: unexpected end of data"),
    ],
)
def test_an_unusable_file_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        files(0, 1, 1, 1, train_file=str(tmp_path / name))


def test_a_missing_file_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    json_lines(tmp_path / "train", ROWS)
    with pytest.raises(ValueError, match=r"no data file .*trian.jsonl .* Did you mean '.*train.js"):
        files(0, 1, 1, 1, train_file=str(tmp_path / "trian.jsonl"))


def test_a_missing_file_is_refused_with_the_searched_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.json \(looked in "):
        files(0, 1, 1, 1, train_file="nowhere.json")


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_bytes(b'["\xff"]')
    with pytest.raises(ValueError, match="is not UTF-8"):
        files(0, 1, 1, 1, train_file=str(tmp_path / "rows.json"))
