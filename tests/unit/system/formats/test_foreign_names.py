"""Names and texts in the form that MLflow, Prefect and DVC accept."""

import re

import pytest

from agentfly_core.system.formats.foreign_names import (
    dvc_accepts,
    mlflow_key,
    mlflow_model,
    mlflow_text,
    one_part,
    prefect_key,
    storable,
)


@pytest.mark.parametrize(
    "name", ["reward/mean", "pass_at_4", "avg_bad_calls", "rewards.mine:exact", "a b", "Größe"]
)
def test_common_names_stay_as_they_are(name: str) -> None:
    assert mlflow_key(name) == name


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("pass@1", "pass_x401"),
        ("pass#1", "pass_x231"),
        ("/format", "_x/format"),
        ("a//b", "a/_x/b"),
        ("..", "_x2e."),
        ("", "_x"),
        ("50 %", "50 _x25"),
        ("f(x)", "f_x28x_x29"),
        ("_x40", "_x5fx40"),
    ],
)
def test_other_characters_are_their_bytes(name: str, key: str) -> None:
    assert mlflow_key(name) == key


def test_a_long_part_is_cut_and_its_neighbours_stay() -> None:
    name, other = f"reward/{'x' * 260}/mean", f"reward/{'x' * 261}/mean"
    key = mlflow_key(name)
    assert re.fullmatch("reward/x{37}_xlong-[0-9a-f]{16}/mean", key)
    assert "_xlong-" in key and key != mlflow_key(other)


def test_a_slash_within_a_part_is_escaped() -> None:
    assert one_part("a/b") == "a%2fb"
    assert one_part("a%2fb") == "a%252fb"
    assert one_part("50%") == "50%"


def test_a_model_has_neither_slash_nor_colon() -> None:
    assert mlflow_model("agentfly-a/b:c") == "agentfly-a_x252fb_x253ac"


def test_a_long_value_is_cut_and_ends_in_a_digest() -> None:
    value = mlflow_text("x" * 7000, 6000)
    assert len(value) == 6000 and " ... long-" in value
    assert mlflow_text("x" * 6000, 6000) == "x" * 6000


def test_text_that_a_database_refuses_is_escaped() -> None:
    assert storable("half \ud83d and \0") == r"half \ud83d and \u0000"
    assert storable(r"half \ud83d") == r"half \u005cud83d"


def test_two_experiments_have_two_artifacts_in_prefect() -> None:
    assert prefect_key("night-my-shop") == "night-my-shop"
    assert re.fullmatch("night-my-shop-[0-9a-f]{8}", prefect_key("night-my_shop"))


def test_dvc_accepts_names_that_need_no_quotes() -> None:
    accepted = [
        n for n in ("shop", "a.b-c_1", "a b", "-f", "a;b", "${a}", "", "../a") if dvc_accepts(n)
    ]
    assert accepted == ["shop", "a.b-c_1"]
