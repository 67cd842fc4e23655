"""Problems: built and checked once."""

import json
import math
import random
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.records import dataset
from agentfly_core.records.dataset import BadRow, leaks, missing_facts
from agentfly_core.records.trajectory import Problem
from tests.support.problems import clean, problems
from tests.support.random_values import Values

BAD = [BadRow("train.jsonl", 17, "field 'question' is missing")]


def dirty(seed, train, validation, test):
    return clean(seed, train, validation, test) | {"train": [*BAD, *problems("a", train - 1)]}


def repeated(seed, train, validation, test):
    return clean(seed, train, validation, test) | {"test": problems("a", test)}


def settings_with(builder, **settings):
    data = {"use": f"{__name__}:{builder}", "train": 8, "validation": 2, "test": 4, **settings}
    return Settings(
        model="nano:calculator", data=data, rewards={"tests.support.problems:clean": 1.0}, steps=1
    )


def prepare(tmp_path, builder, **settings):
    (tmp_path / "data").mkdir()
    made = settings_with(builder, **settings)
    dataset.prepare(made.data, made.data_seed, tmp_path / "data", tmp_path / "quarantine.json")
    return tmp_path / "data"


def test_the_splits_are_written_and_read_back(tmp_path):
    folder = prepare(tmp_path, "clean")
    assert dataset.split(folder, "test") == problems("c", 4)
    assert json.loads((folder / "report.json").read_text()) == {
        "train": 8,
        "validation": 2,
        "test": 4,
    }


def test_a_bad_row_is_refused_by_number_and_quarantined(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"1 row .* \(tolerated: 0\).*train.jsonl, row 17: field 'question' is missing",
    ):
        prepare(tmp_path, "dirty")
    assert json.loads((tmp_path / "quarantine.json").read_text()) == [str(BAD[0])]


def test_a_bad_row_can_be_tolerated(tmp_path):
    assert len(dataset.split(prepare(tmp_path, "dirty", tolerate_bad_rows=1), "train")) == 7


def test_a_problem_in_two_splits_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'a-000' .* train .*test"):
        prepare(tmp_path, "repeated")


def test_a_problem_with_two_ids_in_two_splits_is_refused():
    again = [replace(problem, id=f"t-{problem.id}") for problem in problems("a", 3)]
    again[2] = replace(again[2], prompt=f" {again[2].prompt}\n")
    splits = clean(0, 8, 2, 4) | {"test": [*problems("c", 2), *again]}
    assert leaks(splits) == [
        "3 problems of test with the same prompt and facts in train, such as t-a-000 and a-000"
    ]


def test_one_prompt_with_other_facts_is_another_problem():
    mazes = {
        name: [Problem(name, "Find the way out.", {"way": name})] for name in clean(0, 1, 1, 1)
    }
    assert leaks(mazes) == []


def test_a_fact_that_few_problems_lack_is_named() -> None:
    train = problems("a", 200)
    splits = {"train": [*train[:199], replace(train[199], facts={})], "test": problems("c", 2)}
    assert missing_facts(splits) == [
        "1 of 200 train problems lacks the fact 'answer', which all other problems have; the "
        "first is a-199"
    ]


def test_other_kinds_of_problems_may_have_other_facts() -> None:
    train = problems("a", 200)
    few = [replace(one, facts={"maze": one.id}) for one in train[197:]]
    assert missing_facts({"train": [*train[:197], *few]}) == []
    of_task = [replace(one, task="mazes") for one in few]
    assert missing_facts({"train": [*train[:197], *of_task[:1]]}) == []


@pytest.mark.parametrize("listed", [False, True])
def test_another_content_of_a_data_file_is_another_dataset(tmp_path, listed):
    source = tmp_path / "train.jsonl"
    named, versions = [str(source)] if listed else str(source), []
    for content in ("one", "two", "one"):
        source.write_text(content)
        versions.append(StageKeys(settings_with("clean", train_file=named)).prepare().key)
    assert versions[0] == versions[2] != versions[1]


@pytest.mark.parametrize(("dataset", "kind"), [("mapped", str), ("perhaps_mapped", Path)])
def test_a_folder_is_hashed_by_names_and_contents_of_files(tmp_path, dataset, kind):
    maps, versions, use = tmp_path / "maps", [], f"tests.support.problems:{dataset}"
    (maps / "north").mkdir(parents=True)
    for name, content in (("a.txt", "one"), ("a.txt", "two"), ("b.txt", "two"), ("a.txt", "one")):
        (maps / "north" / name).write_text(content)
        versions.append(StageKeys(settings_with("", use=use, maps=kind(maps))).prepare().key)
        (maps / "north" / name).unlink()
    assert versions[0] == versions[3]
    assert len({*versions}) == 3


def test_an_unknown_data_setting_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"clean .*setting 'digits'"):
        prepare(tmp_path, "clean", digits=2)


SUM = Problem("add-1-1", "What is 1+1?", {"answer": "2"})
GOT = rf"^{__name__}:returned returned "


def returned(seed, train, validation, test):
    return RETURNED[0]


RETURNED = [{}]


def prepare_returned(tmp_path, built):
    RETURNED[0] = built
    return prepare(tmp_path, "returned")


def with_row(row):
    """The result of `clean` with the fourth problem of the training split replaced."""
    built = clean(0, 8, 2, 4)
    return built | {"train": [*built["train"][:3], row, *built["train"][4:]]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            replace(SUM, facts={"seen": [date(2026, 11, 23)]}),
            r"train\[3\], the problem 'add-1-1': facts: cannot be stored as JSON: TypeError: "
            "Object of type date is not JSON serializable",
        ),
        (replace(SUM, id=7), r"train\[3\], the problem 7: its id is 7 \(int\), expected text.$"),
        (replace(SUM, facts={1: 2, "a": 3}), r"facts: has the key 1 \(int\), expected text"),
        (
            replace(SUM, facts=["2"]),
            r"facts are \['2'\] \(list\), expected a dict with text as keys",
        ),
        (replace(SUM, facts={"p": math.nan}), "facts: cannot be stored as JSON: ValueError: Out"),
        (replace(SUM, task="math"), r"its task is 'math'; leave the task empty"),
        (replace(SUM, prompt=None), r"its prompt is None \(NoneType\), expected text.$"),
        (replace(SUM, prompt="\ud800"), "its prompt has a character that UTF-8 does not allow"),
        (
            ("add-1-1", "What is 1+1?"),
            r"train\[3\]: got \('add-1-1', 'What is 1\+1\?'\) \(tuple\), expected Problem\(",
        ),
    ],
)
def test_an_invalid_problem_is_refused_by_split_place_and_fact(row, message, tmp_path):
    with pytest.raises(ValueError, match=GOT + ".*" + message):
        prepare_returned(tmp_path, with_row(row))


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (None, r"None, expected a dict with the keys \['train', 'validation', 'test'\].$"),
        ([SUM], r"\[Problem\(id='add-1-1'(?s:.*), expected a dict with the keys"),
        ({"train": [], 1: []}, r"the keys \['train', 1\], expected a dict"),
        (clean(0, 8, 2, 4) | {"validation": "ab"}, r"'ab' \(str\) for validation, expected a list"),
        (clean(0, 8, 2, 4) | {"test": {"a": SUM}}, r"\{(?s:.*) \(dict\) for test, expected a list"),
        (
            clean(0, 8, 2, 4) | {"test": (p for p in problems("c", 4))},
            r"<generator .* \(generator\) for test, expected a list of Problem.$",
        ),
        (
            clean(0, 9, 2, 4),
            "9 problems for train, expected 8: set data.train=9, or return a BadRow",
        ),
        (
            clean(0, 8, 2, 3),
            "3 problems for test, expected 4: set data.test=3, or return a BadRow",
        ),
    ],
)
def test_other_splits_and_counts_than_asked_for_are_refused(built, message, tmp_path):
    with pytest.raises(ValueError, match=GOT + message):
        prepare_returned(tmp_path, built)


@pytest.mark.slow
def test_odd_rows_are_refused_by_place_or_read_back_unchanged(tmp_path):
    leaves = [(0, 7, 0.5, math.nan), ("", "a", "\ud800"), (date.today(), b"", {1}, object())]
    value = Values(leaves, lambda draw: draw.choice(("a", "b", 1, None)))
    draw, refused = random.Random(3), 0
    for case in range(400):
        facts = {"odd": value(draw)} if draw.random() < 0.9 else value(draw)
        row = draw.choice([replace(SUM, facts=facts)] * 6 + [replace(SUM, id=value(draw)), facts])
        where = tmp_path / str(case)
        where.mkdir()
        try:
            problems = dataset.split(prepare_returned(where, with_row(row)), "train")
        except ValueError as error:
            refused += 1
            assert "returned train[3]" in str(error), f"case {case}, {row!r}: {error}"
        else:
            assert problems[3] == row, f"case {case}"
    assert 100 < refused < 350
