"""The runs of a sweep."""

from pathlib import Path

import pytest

from agentfly_core.config import loading
from agentfly_core.reports.compare.sweep import alternatives, grid, runs_named
from agentfly_core.runs.run_tags import change_tags
from agentfly_core.store.store import Store
from tests.support.evaluated_runs import project


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project(tmp_path)


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("steps=2", ["steps=2"]),
        ("rate=1e-4,3e-4", ["rate=1e-4", "rate=3e-4"]),
        ("rate=1e-4, 3e-4", ["rate=1e-4", "rate=3e-4"]),
        ("betas=[0.9, 0.95],[0.8, 0.9]", ["betas=[0.9, 0.95]", "betas=[0.8, 0.9]"]),
        ("betas=[0.9, 0.95]", ["betas=[0.9, 0.95]"]),
        ('system="Yes, please",""', ['system="Yes, please"', 'system=""']),
        ("system='a, b'", ["system='a, b'"]),
        (
            "algorithm=grpo,{use: dapo, overlong: {longest: 5}}",
            ["algorithm=grpo", "algorithm={use: dapo, overlong: {longest: 5}}"],
        ),
        ("model=run:one@7,run:two@3", ["model=run:one@7", "model=run:two@3"]),
        ('rewards={"a:b": 1, "c:d": 2}', ['rewards={"a:b": 1, "c:d": 2}']),
        ("system=", ["system="]),
        ("steps", ["steps"]),
    ],
)
def test_commas_separate_values_as_in_a_yaml_list(override: str, values: list[str]) -> None:
    assert alternatives(override) == values


@pytest.mark.parametrize("value", ["[1, 2", "1],[2", '"a'])
def test_values_that_are_invalid_yaml_are_refused_unshown(value: str) -> None:
    with pytest.raises(ValueError, match=r"^steps: .* YAML, expected steps=V"):
        alternatives(f"steps={value}")


def test_each_combination_has_each_seed_in_order_of_seeds() -> None:
    assert grid("tiny", ["steps=2,3", "update.epochs=1,2"], 2) == [
        ["steps=2", "update.epochs=1", "seed=0"],
        ["steps=2", "update.epochs=2", "seed=0"],
        ["steps=3", "update.epochs=1", "seed=0"],
        ["steps=3", "update.epochs=2", "seed=0"],
        ["steps=2", "update.epochs=1", "seed=1"],
        ["steps=2", "update.epochs=2", "seed=1"],
        ["steps=3", "update.epochs=1", "seed=1"],
        ["steps=3", "update.epochs=2", "seed=1"],
    ]


def test_all_seeds_have_the_problems_of_the_first_seed() -> None:
    assert grid("tiny", ["data.seed=null"], 2) == [
        ["data.seed=null", "seed=0"],
        ["data.seed=null", "seed=1", "data.seed=0"],
    ]
    assert grid("tiny", ["data.seed=null", "seed=5,7"], None)[1] == [
        "data.seed=null",
        "seed=7",
        "data.seed=5",
    ]
    assert grid("tiny", ["data.seed=null", "seed=5"], None) == [["data.seed=null", "seed=5"]]


def test_runs_of_the_first_seed_equal_those_of_train() -> None:
    (alone,) = grid("tiny", ["data.seed=null"], None)
    more = grid("tiny", ["data.seed=null"], 3)
    digests = [loading.read("tiny", settings).settings.digest for settings in (alone, *more)]
    assert digests[0] == digests[1] == loading.read("tiny", ["data.seed=null"]).settings.digest
    assert len({*digests}) == 3


def test_an_own_data_seed_is_kept() -> None:
    assert grid("tiny", ["data.seed=null,3"], 2)[2:] == [
        ["data.seed=null", "seed=1", "data.seed=0"],
        ["data.seed=3", "seed=1"],
    ]


def test_seed_and_seeds_together_are_refused() -> None:
    with pytest.raises(ValueError, match="Got both seed= and --seeds"):
        grid("tiny", ["seed=5"], 3)


def test_a_repeated_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"steps is given twice: .*steps=VALUE,"):
        grid("tiny", ["steps=2", "steps=3"], None)


def test_a_tag_of_a_run_that_never_began_is_refused(tmp_path: Path) -> None:
    store = Store.at(str(tmp_path), tmp_path)
    change_tags(store, "tiny-1f2e3d4c", ["rates"], [])
    with pytest.raises(ValueError, match=r"No run in .* has the tag 'rates'"):
        runs_named(store, ["sweep:rates"])
