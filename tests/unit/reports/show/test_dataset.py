"""Preview of a prepared dataset."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.pipeline import inputs
from agentfly_core.records.trajectory import Problem
from agentfly_core.reports.show.dataset import preview
from tests.support.experiments import experiment
from tests.support.problems import clean


def test_a_preview_counts_problems_and_shows_some_of_each_split(tmp_path: Path) -> None:
    data = {"use": "tests.support.problems:clean", "train": 8, "validation": 1, "test": 4}
    here = experiment(tmp_path, data=data)
    made = inputs.dataset(here)
    shown = preview(here.store, made, 2)
    assert shown.sizes == {"train": 8, "validation": 1, "test": 4}
    assert {name: [one.id for one in some] for name, some in shown.sample.items()} == {
        "train": ["a-000", "a-004"],
        "validation": ["b-000"],
        "test": ["c-000", "c-002"],
    }
    assert shown.to_json()["sample"]["test"][1] == {  # type: ignore[index, call-overload]
        "id": "c-002",
        "prompt": "What is c 2?",
        "facts": {"answer": "2"},
    }
    lines = [*shown.lines()]
    assert lines[0].split() == ["train", "8", "problem(s)"]
    assert lines[3:6] == ["\ntrain: a-000", "What is a 0?", '{"answer": "0"}']
    assert json.loads(json.dumps(shown.to_json()))["quarantined"] == 0


def test_invalid_rows_are_counted_in_each_preview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the list of the rows
    rows = [{"question": f"{number}?", "answer": number} for number in range(6)]
    text = "\n".join([*map(json.dumps, rows), '{"answer": 1}', "no JSON"])
    (tmp_path / "train.jsonl").write_text(text)
    files = {"use": "agentfly_core.datasets.files:files", "train_file": f"{tmp_path}/train.jsonl"}
    data = {**files, "train": 4, "validation": 0, "test": 2, "tolerate_bad_rows": 2}
    here = experiment(tmp_path, data=data)
    for _ in range(2):
        made = inputs.dataset(here)
        shown = preview(here.store, made, 1)
        assert (shown.quarantined, shown.sizes["train"]) == (2, 4)
        lines = [" ".join(line.split()) for line in shown.lines()]
        assert "left out 2 bad row(s)" in lines


def test_rows_with_repeated_problems_are_counted_and_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{number}?", "answer": number} for number in (*range(6), 0, 1, 1)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = {"use": "agentfly_core.datasets.files:files", "train_file": f"{tmp_path}/train.jsonl"}
    here = experiment(tmp_path, data={**files, "train": 4, "validation": 0, "test": 2})
    made = inputs.dataset(here)
    shown = preview(here.store, made, 1)
    assert (shown.quarantined, shown.repeated, shown.sizes["train"]) == (0, 3, 4)
    lines = [" ".join(line.split()) for line in shown.lines()]
    assert "left out 3 repeated row(s)" in lines
    (listed,) = (tmp_path / "quarantine").iterdir()
    assert json.loads(listed.read_text())[0] == "train.jsonl, row 7: row 1 is the same"


def leaking(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Data with the prompt and facts of the first training problem in the last test problem."""
    splits = clean(seed, train, validation, test)
    return {**splits, "test": [*splits["test"][1:], replace(splits["train"][0], id="again")]}


def test_a_problem_in_two_splits_is_in_the_log_and_each_preview(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = {"use": f"{__name__}:leaking", "train": 8, "validation": 0, "test": 4}
    here = experiment(tmp_path, data=data)
    warning = "1 problem of test with the same prompt and facts in train, such as again and a-000"
    for _ in range(2):
        shown = preview(here.store, inputs.dataset(here), 1)
        assert warning in shown.lines()
    assert [record.getMessage() for record in caplog.records] == [
        f"The dataset {__name__}:leaking: {warning}."
    ]
