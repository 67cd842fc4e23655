"""Names and texts in the form that MLflow, Prefect and DVC accept."""

from __future__ import annotations

import re

import pytest

from agentfly_core.system.formats.foreign_names import (
    dvc_accepts,
    mlflow_key,
    mlflow_model,
    mlflow_text,
    prefect_key,
    storable,
)


@pytest.mark.parametrize(
    "name", ["reward/mean", "pass_at_4", "avg_bad_calls", "rewards.mine:exact", "a b", "Größe"]
)
def test_common_names_stay_as_they_are(name: str) -> None:
    assert mlflow_key(name) == name


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("pass@1", "pass-1-"),
        ("/format", "format-"),
        ("a//b", "a/b-"),
        ("..", ""),
        ("", ""),
        ("50 %", "50-"),
        ("f(x)", "f-x-"),
        ("reward/mean-1a2b3c4d", "reward/mean-1a2b3c4d-"),
    ],
)
def test_other_names_get_a_digest(name: str, slug: str) -> None:
    assert re.fullmatch(f"{slug}[0-9a-f]{{8}}", mlflow_key(name))


def test_a_long_name_is_cut() -> None:
    name, other = f"reward/{'x' * 260}", f"reward/{'x' * 261}"
    assert re.fullmatch("reward/x{234}-[0-9a-f]{8}", mlflow_key(name))
    assert mlflow_key(name) != mlflow_key(other)


def test_a_model_has_neither_slash_nor_colon() -> None:
    assert mlflow_model("agentfly-quickstart") == "agentfly-quickstart"
    assert re.fullmatch("agentfly-a-b-c-[0-9a-f]{8}", mlflow_model("agentfly-a/b:c"))


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
