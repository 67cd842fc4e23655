"""Comparison of runs: figures, refusals, and the final sentence."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.reports.compare.run_comparison import (
    RunComparison,
    TriedPolicy,
    compared,
    shown,
    tried,
)
from agentfly_core.runs.run import opened
from agentfly_core.store.store import Store
from tests.support.evaluated_runs import (
    experiment_with,
    finished,
    on_further,
    project,
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    return project(tmp_path)


def comparison(store: Store, *names: str) -> RunComparison:
    return compared([tried(store, name, "test") for name in names])


@pytest.mark.slow
def test_runs_of_a_setting_are_one_row_over_their_seeds(
    store: Store,
) -> None:
    for seed, (slow, fast) in enumerate([("11000000", "11110000"), ("11100000", "11111000")]):
        finished(store, f"slow-{seed}", slow, f"seed={seed}", "update.learning_rate=1e-4")
        finished(store, f"fast-{seed}", fast, f"seed={seed}", "update.learning_rate=3e-4")
    compared = comparison(store, "slow-0", "slow-1", "fast-0", "fast-1")
    slow, fast = compared.groups
    assert (slow.differs, fast.differs) == (
        {"update.learning_rate": 1e-4},
        {"update.learning_rate": 3e-4},
    )
    assert [policy.name for policy in fast.policies] == ["fast-0@2", "fast-1@2"]
    assert (slow.success.value, fast.success.value) == (0.3125, 0.5625)
    assert slow.difference is None
    assert fast.difference is not None
    assert fast.difference.value == 0.25
    assert compared.sentence.startswith(
        "update.learning_rate=3e-4 solves 25.0 percentage points more problems than 1e-4 (95 % "
    )
    assert compared.sentence.endswith(", 2 seeds each): no significant difference.")
    turned = comparison(store, "fast-0", "fast-1", "slow-0", "slow-1")
    assert turned.groups[0].differs == {"update.learning_rate": 3e-4}
    assert "=1e-4 solves 25.0 percentage points fewer problems than 3e-4" in turned.sentence


def test_a_problem_unscored_in_one_run_is_left_out_and_counted(
    store: Store,
) -> None:
    finished(store, "one", "1111?000")
    finished(store, "two", "11111110", "update.epochs=2")
    compared = comparison(store, "one", "two")
    assert (compared.problems, compared.left_out) == (7, 1)
    assert [group.success.value for group in compared.groups] == [4 / 7, 6 / 7]


def test_a_single_setting_has_its_own_success(store: Store) -> None:
    finished(store, "one", "11110000")
    assert comparison(store, "run:one").sentence.startswith(
        "one@2 solves 50.0% of 8 held-out problems (95 % interval 21.5% to 78.5% over problems)."
    )


def test_other_problems_cannot_be_compared(store: Store) -> None:
    finished(store, "one", "11110000")
    finished(store, "two", "1111", "data.test=4")
    message = (
        r"one@2 and two@2 cannot be compared: they were evaluated on different problems "
        r"\(because of data\.test\)\. Use the same data\. .*data\.seed, as `agentfly sweep`"
    )
    with pytest.raises(ValueError, match=message):
        comparison(store, "one", "two")


def test_runs_with_other_training_problems_can_be_compared(
    store: Store,
) -> None:
    finished(store, "one", "11110000")
    finished(store, "two", "11111100", "data.train=128")
    compared = comparison(store, "one", "two")
    assert [group.differs for group in compared.groups] == [{"data.train": 64}, {"data.train": 128}]
    assert "train=128 solves 25.0 percentage points more problems than 64 (" in compared.sentence


def test_other_training_problems_are_another_seed_of_a_setting(
    store: Store,
) -> None:
    finished(store, "one", "11110000")
    finished(store, "two", "11111100", "data.seed=1")
    (group,) = comparison(store, "one", "two").groups
    assert [policy.data_seed for policy in group.policies] == [0, 1]
    assert group.success.value == 0.625


def test_another_goal_cannot_be_compared(store: Store) -> None:
    finished(store, "one", "11110000")
    one = tried(store, "one", "test")
    other = replace(one, run="two", goal="my_project.rewards:cites")
    message = (
        r"one@2 and two@2 cannot be compared: evaluate\.goal is "
        r"agentfly_core\.rewards\.exact:exact .*my_project\.rewards:cites"
    )
    with pytest.raises(ValueError, match=message):
        compared([one, other])


def test_the_same_setting_and_seed_twice_is_refused(store: Store) -> None:
    finished(store, "one", "11110000")
    finished(store, "again", "11110000")
    with pytest.raises(ValueError, match=r"one@2 and again@2 .*same settings"):
        comparison(store, "one", "again")


def test_an_unfinished_run_is_refused_with_its_command(
    store: Store,
) -> None:
    with opened(experiment_with(store, "seed=3"), "begun"):
        pass
    message = r"'begun' is not finished.*To finish it: agentfly train tiny seed=3 --run begun$"
    with pytest.raises(ValueError, match=message):
        tried(store, "begun", "test")


def test_an_unevaluated_step_is_refused_with_its_command(
    store: Store,
) -> None:
    finished(store, "one", "11110000", "update.epochs=2")
    message = (
        r"one@1 was not evaluated on the test problems\. To evaluate it: agentfly evaluate tiny "
        r"update\.epochs=2 --policy run:one@1"
    )
    with pytest.raises(ValueError, match=message):
        tried(store, "one@1", "test")
    with pytest.raises(ValueError, match=r"one@2 was not evaluated .*validation"):
        tried(store, "one", "validation")


def test_a_missing_run_is_refused(store: Store) -> None:
    finished(store, "one", "11110000")
    with pytest.raises(ValueError, match=r"run 'onee' in .*'one'"):
        tried(store, "onee", "test")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3e-4, "3e-4"),
        (0.00015, "1.5e-4"),
        (0.01, "0.01"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (16, "16"),
        (True, "true"),
        (None, "null"),
        ([1, 2], "[1, 2]"),
        ("a:b", "a:b"),
    ],
)
def test_a_value_is_shown_as_it_is_typed(value: object, text: str) -> None:
    assert shown(value) == text  # type: ignore[arg-type]


def test_a_fork_differs_in_its_origin(store: Store) -> None:
    finished(store, "mine", "11000000")
    fork = "fork={run: mine, step: 1}"
    finished(store, "slower", "11100000", fork, "update.learning_rate=1e-7")
    mine, slower = comparison(store, "mine", "slower").groups
    assert mine.differs == {"update.learning_rate": 1e-6, "fork": None}
    assert slower.differs == {"update.learning_rate": 1e-7, "fork": "mine@1"}


def test_runs_are_compared_on_further_datasets_by_their_name(store: Store) -> None:
    data = '{use: "tests.support.problems:clean", test: 4, seed: 7}'
    settings = f"evaluate.datasets={{hard: {data}}}"
    finished(store, "one", "11110000", settings)
    finished(store, "two", "11110000", "update.epochs=2")
    on_further(store, "one", "hard", "1000", settings)
    assert tried(store, "one", "hard").solved == {
        "c-000": 1.0,
        "c-001": 0.0,
        "c-002": 0.0,
        "c-003": 0.0,
    }
    assert [*comparison(store, "one", "two").groups[1].differs] == ["update.epochs"]
    message = (
        r"'two' has no held-out problems with the name 'hard', expected one of test, validation\."
    )
    with pytest.raises(ValueError, match=message):
        tried(store, "two", "hard")


def edited(run: str, module: str, **functions: str) -> TriedPolicy:
    """A policy of a run with this digest of my_quiz, and of its functions."""
    code = {f"my_quiz.{name}": digest for name, digest in functions.items()}
    settings = {"code.my_quiz": module, "step": 2}
    solved = {"one": 1.0, "two": 0.0}
    return TriedPolicy(run, 2, 0, 0, settings, "f491", "exact", solved, {"my_quiz": "0", **code})


def test_changed_code_is_named_by_function() -> None:
    runs = [
        edited("first", "9f2c", look_up="a", answer="x"),
        edited("second", "77b0", look_up="b", answer="x"),
        edited("third", "51aa", look_up="c", answer="x"),
        edited("fourth", "be7d", look_up="a", answer="x", hint="n"),
    ]
    assert [group.differs for group in compared(runs).groups] == [
        {"code.my_quiz.hint": "unchanged", "code.my_quiz.look_up": "unchanged"},
        {"code.my_quiz.hint": "unchanged", "code.my_quiz.look_up": "changed"},
        {"code.my_quiz.hint": "unchanged", "code.my_quiz.look_up": "version 3"},
        {"code.my_quiz.hint": "changed", "code.my_quiz.look_up": "unchanged"},
    ]
    assert compared(runs[:2]).sentence.startswith(
        "code.my_quiz.look_up=changed solves 0.0 percentage points more problems than unchanged"
    )


def test_changed_code_recorded_without_functions_has_its_digest() -> None:
    old = replace(edited("old", "9f2c"), code={})
    new = edited("new", "77b0", look_up="a")
    assert [group.differs for group in compared([old, new]).groups] == [
        {"code.my_quiz": "9f2c"},
        {"code.my_quiz": "77b0"},
    ]
