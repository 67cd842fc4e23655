"""Problems: built and checked once, dealt out by the seed, written down when consumed."""

import json
from dataclasses import replace

import pytest
from test_record import trajectory

from agentfly_core import dataset, slots
from agentfly_core.config import Science
from agentfly_core.dataset import BadRow, LedgerRow
from agentfly_core.record import Problem, Scored, Unscored

BAD = [BadRow("train.jsonl", 17, "field 'question' is missing")]


def problems(prefix, count):
    return [Problem(f"{prefix}-{i:03d}", f"What is {prefix} {i}?", {"answer": str(i)}) for i in range(count)]


def clean(seed, train, validation, test):
    return {"train": problems("a", train), "validation": problems("b", validation), "test": problems("c", test)}


def dirty(seed, train, validation, test):
    return clean(seed, train, validation, test) | {"train": [*BAD, *problems("a", train - 1)]}


def repeated(seed, train, validation, test):
    return clean(seed, train, validation, test) | {"test": problems("a", test)}


def science(builder, **settings):
    data = {"use": f"test_dataset:{builder}", "train": 8, "validation": 2, "test": 4, **settings}
    return Science(model="nano:calculator", data=data, rewards={"test_dataset:clean": 1.0}, steps=1)


def prepare(tmp_path, builder, **settings):
    (tmp_path / "data").mkdir()
    dataset.prepare(science(builder, **settings), tmp_path / "data", tmp_path / "quarantine.json")
    return tmp_path / "data"


def test_the_splits_are_written_and_read_back(tmp_path):
    folder = prepare(tmp_path, "clean")
    assert dataset.split(folder, "test") == problems("c", 4)
    assert json.loads((folder / "report.json").read_text()) == {"train": 8, "validation": 2, "test": 4}


def test_a_bad_row_is_refused_by_its_number_and_kept_in_quarantine(tmp_path):
    with pytest.raises(
        ValueError, match=r"1 rows .* \(tolerated: 0\).*train.jsonl, row 17: field 'question' is missing"
    ):
        prepare(tmp_path, "dirty")
    assert json.loads((tmp_path / "quarantine.json").read_text()) == [str(BAD[0])]


def test_a_bad_row_can_be_tolerated(tmp_path):
    assert len(dataset.split(prepare(tmp_path, "dirty", tolerate_bad_rows=1), "train")) == 7


def test_a_problem_in_two_splits_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'a-000' is in train and in test"):
        prepare(tmp_path, "repeated")


def test_another_content_of_a_data_file_is_another_dataset(tmp_path):
    source = tmp_path / "train.jsonl"
    keys = []
    for content in ("one", "two", "one"):
        source.write_text(content)
        keys.append(slots.prepare(science("clean", train_file=str(source))).key)
    assert keys[0] == keys[2] != keys[1]


def test_an_unknown_data_setting_is_refused(tmp_path):
    with pytest.raises(ValueError, match="clean has no setting 'digits'"):
        prepare(tmp_path, "clean", digits=2)


def test_a_pass_deals_every_problem_once_and_the_next_pass_in_another_order():
    dealt = [dataset.problems_of_step(problems("a", 9), step, 2, seed=0) for step in range(1, 9)]
    first, second = [p for step in dealt[:4] for p in step], [p for step in dealt[4:] for p in step]
    assert len({p.id for p in first}) == 8 == len({p.id for p in second})
    assert first != second
    assert dealt[2] == dataset.problems_of_step(problems("a", 9), 3, 2, seed=0)
    assert dealt[2] != dataset.problems_of_step(problems("a", 9), 3, 2, seed=1)


def test_more_problems_a_step_than_there_are_is_refused():
    with pytest.raises(ValueError, match="needs 3 problems, the training split has 2"):
        dataset.problems_of_step(problems("a", 2), 1, 3, seed=0)


def test_the_ledger_says_what_became_of_each_problem():
    rewards = {"p": [1.0, 0.0], "q": [1.0, 1.0], "r": [Unscored("exact: TimeoutError")] * 2}
    played, scores = [], []
    for name, values in rewards.items():
        for chain, value in enumerate(values):
            played.append(replace(trajectory(), id=f"{name}{chain}", problem=Problem(name, "?"), chain=chain))
            scores.append(Scored(f"{name}{chain}", {}, (), value))
    assert dataset.ledger(7, played, scores) == [
        LedgerRow(7, "p", 2, 2, 0.5, "used"),
        LedgerRow(7, "q", 2, 2, 1.0, "zero_spread"),
        LedgerRow(7, "r", 2, 0, None, "unscored"),
    ]
