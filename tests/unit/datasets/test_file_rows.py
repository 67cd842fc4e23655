"""Tables, chat messages and renamed columns, and rows that come again."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from agentfly_core.datasets.columns import renamed
from agentfly_core.datasets.files import files, read, require_fields
from agentfly_core.records.dataset import BadRow, Repeated
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats.hashing import digest, short


def table(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def numbered_rows(*numbers: int) -> list[dict[str, str]]:
    return [{"question": f"What is {n}+1?", "answer": str(n + 1)} for n in numbers]


def test_a_table_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    text = '\ufeffid,question,answer,unit\r\na,"1,5+1?\r\nSay it.","2,5",m\r\n\r\nb,1+1?,2,\r\n'
    assert [*read(table(tmp_path / "sums.csv", text))] == [
        (2, Problem("a", "1,5+1?\r\nSay it.", {"answer": "2,5", "unit": "m"})),
        (4, Problem("b", "1+1?", {"answer": "2", "unit": None})),
    ]


def test_table_rows_are_numbered_like_a_spreadsheet(tmp_path: Path) -> None:
    path = table(tmp_path / "sums.csv", "question,answer\n1+1?,2\n1+2?\n,4\n1+4?,\n")
    assert [row for _, row in read(path, ["answer"])][1:] == [
        BadRow("sums.csv", 3, "it cannot be read: got 1 cells for 2 columns"),
        BadRow(
            "sums.csv",
            4,
            "the row has none of the fields prompt, question, instruction, problem, messages, "
            "conversations",
        ),
        BadRow("sums.csv", 5, "the row has no value for 'answer'"),
    ]


def test_long_cells_are_read_whole(tmp_path: Path) -> None:
    long = "1+" * 100_000 + "1"
    path = table(tmp_path / "sums.csv", f"question,answer\n{long},100001\n")
    assert [row.prompt for _, row in read(path) if isinstance(row, Problem)] == [long]


def test_columns_can_be_renamed(tmp_path: Path) -> None:
    rows = [{"text": "1+1?", "solution": 2}, {"text": "1+2?", "solution": 3, "answer": 3}]
    path = Path(lines(tmp_path / "a.jsonl", rows))
    columns = {"text": "question", "solution": "answer"}
    assert [row for _, row in read(path, ["answer"], columns)] == [
        Problem(short("1+1?", digest({"answer": 2})), "1+1?", {"answer": 2}),
        BadRow(
            "a.jsonl",
            2,
            "the fields 'solution' and 'answer' would all be named 'answer'; change the "
            "new names in `columns`",
        ),
    ]


def test_columns_exchange_names_but_never_share_one() -> None:
    row = {"a": 1, "b": 2}
    assert renamed(row, {"a": "b", "b": "a"}) == {"b": 1, "a": 2}
    with pytest.raises(ValueError, match=r"'a' and 'b' .* 'x'"):
        renamed(row, {"a": "x", "b": "x"})


def test_a_repeated_row_is_skipped(tmp_path: Path) -> None:
    rows = [*numbered_rows(0), *numbered_rows(0)]
    assert [row for _, row in read(Path(lines(tmp_path / "a.jsonl", rows)))][1:] == [
        Repeated("a.jsonl", 2, "row 1 is the same")
    ]


@pytest.mark.parametrize("ids", [[{}, {}, {}], [{"id": 1}, {"id": 2}, {"id": 3}]])
def test_a_question_with_other_facts_is_another_problem(
    ids: list[dict[str, int]], tmp_path: Path
) -> None:
    rows = [{**own, "question": "Sort it.", "ticket": n} for n, own in enumerate(ids)]
    built = files(0, 1, 1, 1, train_file=lines(tmp_path / "a.jsonl", rows))
    played = [row for split in built.values() for row in split if isinstance(row, Problem)]
    assert sorted(row.facts["ticket"] for row in played) == [0, 1, 2]
    assert len({row.id for row in played}) == 3


def test_files_with_equal_row_numbers_are_refused(tmp_path: Path) -> None:
    numbered = [{"id": n, **row} for n, row in enumerate(numbered_rows(*range(6)))]
    train = lines(tmp_path / "train.jsonl", numbered[:4])
    test = lines(tmp_path / "test.jsonl", [{**row, "id": n} for n, row in enumerate(numbered[4:])])
    with pytest.raises(ValueError, match=r"the id '[01]'.*`columns: {id: row}`"):
        files(0, 2, 1, 1, train_file=train, test_file=test)
    built = files(0, 2, 1, 1, train_file=train, test_file=test, columns={"id": "row"})
    assert [len(rows) for rows in built.values()] == [1, 1, 2]


def test_alpacas_input_is_part_of_the_prompt(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Translate.", "input": "Guten Tag", "output": "Good day"},
        {"instruction": "Name a color.", "input": "", "output": "red"},
    ]
    read_rows = [row for _, row in read(Path(lines(tmp_path / "a.jsonl", rows)))]
    assert [row.prompt for row in read_rows if isinstance(row, Problem)] == [
        "Translate.\n\nGuten Tag",
        "Name a color.",
    ]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv"])
def test_a_byte_order_mark_is_skipped(name: str, tmp_path: Path) -> None:
    texts = {
        "a.json": '[{"question": "1+1?", "answer": "2"}]',
        "a.jsonl": '{"question": "1+1?", "answer": "2"}\n',
        "a.csv": "question,answer\n1+1?,2\n",
    }
    path = table(tmp_path / name, f"\ufeff{texts[name]}")
    ((_, row),) = read(path)
    assert isinstance(row, Problem)
    assert (row.prompt, row.facts) == ("1+1?", {"answer": "2"})
    require_fields(str(path), needs=("answer",))


def test_the_index_of_pandas_is_ignored(tmp_path: Path) -> None:
    frame = pd.DataFrame({"question": ["1+1?", "1+1?"], "answer": ["2", "2"]}, index=[3, 5])
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv")
    pd.read_csv(tmp_path / "a.csv").to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        (_, row), (_, again) = read(tmp_path / name)
        assert isinstance(row, Problem)
        assert {*row.facts} == {"answer"}, name
        assert isinstance(again, Repeated), name


def test_questions_are_not_trained(tmp_path: Path) -> None:
    spaced = {"question": "What  is\n8+1?", "answer": "9", "id": "other"}
    train = lines(tmp_path / "train.jsonl", [*numbered_rows(*range(6)), spaced])
    test = lines(tmp_path / "test.jsonl", numbered_rows(8, 9))
    built = files(0, 4, 2, 2, train_file=train, test_file=test)
    assert built["train"][-1] == Repeated(
        "train.jsonl", 7, "another split has a row with this question and facts"
    )
    assert [len(built[split]) for split in ("train", "validation", "test")] == [5, 2, 2]
    with pytest.raises(ValueError, match=r"has 7 rows, 1 of which repeat"):
        files(0, 5, 2, 2, train_file=train, test_file=test)


def test_splits_of_one_file_share_no_question_whatever_their_ids(tmp_path: Path) -> None:
    rows = [{"id": f"{copy}-{n}", "question": f"{n}+1?"} for copy in "ab" for n in range(10)]
    built = files(3, 4, 0, 8, train_file=lines(tmp_path / "a.jsonl", rows))
    prompts = {
        split: {row.prompt for row in built[split] if isinstance(row, Problem)} for split in built
    }
    assert not prompts["train"] & prompts["test"]
    assert any(isinstance(row, Repeated) for row in built["train"])
