"""Problems: built and checked once."""

import json

import pytest

from agentfly_core.artifacts import keys
from agentfly_core.config.experiment import Science
from agentfly_core.records import dataset
from agentfly_core.records.dataset import BadRow
from tests.support.problems import clean, problems

BAD = [BadRow("train.jsonl", 17, "field 'question' is missing")]


def dirty(seed, train, validation, test):
    return clean(seed, train, validation, test) | {"train": [*BAD, *problems("a", train - 1)]}


def repeated(seed, train, validation, test):
    return clean(seed, train, validation, test) | {"test": problems("a", test)}


def science(builder, **settings):
    data = {"use": f"{__name__}:{builder}", "train": 8, "validation": 2, "test": 4, **settings}
    return Science(
        model="nano:calculator", data=data, rewards={"tests.support.problems:clean": 1.0}, steps=1
    )


def prepare(tmp_path, builder, **settings):
    (tmp_path / "data").mkdir()
    dataset.prepare(science(builder, **settings), tmp_path / "data", tmp_path / "quarantine.json")
    return tmp_path / "data"


def test_the_splits_are_written_and_read_back(tmp_path):
    folder = prepare(tmp_path, "clean")
    assert dataset.split(folder, "test") == problems("c", 4)
    assert json.loads((folder / "report.json").read_text()) == {
        "train": 8,
        "validation": 2,
        "test": 4,
    }


def test_a_bad_row_is_refused_by_its_number_and_kept_in_quarantine(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"1 rows .* \(tolerated: 0\).*train.jsonl, row 17: field 'question' is missing",
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
    found = []
    for content in ("one", "two", "one"):
        source.write_text(content)
        found.append(keys.prepare(science("clean", train_file=str(source))).key)
    assert found[0] == found[2] != found[1]


def test_an_unknown_data_setting_is_refused(tmp_path):
    with pytest.raises(ValueError, match="clean has no setting 'digits'"):
        prepare(tmp_path, "clean", digits=2)
