"""Hostile names reach MLflow, Prefect and DVC, and take no neighbour along."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from dvc.utils.serialize import load_yaml
from mlflow import MlflowClient
from prefect.client.schemas.actions import ArtifactCreate

from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.foreign_names import (
    dvc_accepts,
    mlflow_key,
    mlflow_text,
    prefect_key,
    storable,
)
from agentfly_core.tracking.mlflow_client import MlflowStore
from agentfly_core.tracking.mlflow_run import MlflowRun
from tests.support.mlflow_store import new_store

SEED, COUNT, TIME = 42, 500, 1763740000000
PIECES = (
    *("/", "//", "..", ".", " ", "%", "(", ")", "@", "#", ":", "_x", "_x40", "_xlong-", "\\", "\n"),
    *(
        "\0",
        "\x1b[31m",
        "\ud83d",
        "\u202e",
        "é",
        "日本",
        "'",
        '"',
        "`",
        "$",
        "${a}",
        "%2f",
        "x" * 260,
    ),
    *(
        "a",
        "B",
        "reward",
        "mean",
        "pass",
        "1",
        "-",
        "_",
        "[0]",
        "{",
        "}",
        "<b>",
        "&",
        ";",
        "|",
        "~",
    ),
)
NEIGHBOURS = ("reward/mean", "pass_at_4", "rollout/reward")


def hostile_names() -> list[str]:
    """Different names made of one to five pieces."""
    chance, names = random.Random(SEED), {"", "/format", "a//b", "..", "pass@1", "pass#1"}
    while len(names) < COUNT:
        names.add("".join(chance.choices(PIECES, k=chance.randint(1, 5))))
    return sorted(names)


@pytest.fixture(scope="module")
def names() -> list[str]:
    return hostile_names()


def test_each_name_has_a_key_of_its_own(names: list[str]) -> None:
    keys = {mlflow_key(name) for name in [*NEIGHBOURS, *names]}
    assert len(keys) == len(NEIGHBOURS) + COUNT


def test_mlflow_gets_every_metric_setting_and_tag(names: list[str], tmp_path: Path) -> None:
    place = MlflowStore.choose(tmp_path, new_store(tmp_path))
    run = MlflowRun(place, "shop", "demo", "4f1c", TIME)
    every = [*NEIGHBOURS[:1], *names, *NEIGHBOURS[1:]]
    run.points({name: float(number) for number, name in enumerate(every)}, 1, TIME)
    run.settings({name: f"setting {name}" for name in every})
    run.tags({name: f"tag {name}" for name in every})
    assert run.refused == {}
    client = MlflowClient(place.uri)
    data = client.get_run(run.run_id).data
    assert data.metrics == {mlflow_key(name): number for number, name in enumerate(every)}
    assert data.params == {mlflow_key(n): mlflow_text(f"setting {n}", 6000) for n in every}
    tags = {mlflow_key(name): mlflow_text(f"tag {name}", 5000) for name in every}
    assert tags.items() <= data.tags.items()


def test_prefect_accepts_a_key_of_its_own_for_each_name(names: list[str]) -> None:
    keys = {prefect_key(f"night-{name}") for name in names}
    assert len(keys) == COUNT
    for key, name in zip(sorted(keys), names, strict=True):
        artifact = ArtifactCreate(key=key, description=storable(name), data=storable(name))
        assert json.loads(artifact.model_dump_json())["key"] == key


def test_dvc_reads_settings_next_to_each_name(names: list[str], tmp_path: Path) -> None:
    texts = [storable(name) for name in names]
    settings = {"data": dict.fromkeys(texts, 1), "overrides": texts, "seed": 7}
    file = tmp_path / "config.yaml"
    file.write_text(strict_yaml.dump(settings))
    assert load_yaml(file) == settings


def test_dvc_is_given_no_name_that_a_shell_reads_otherwise(names: list[str]) -> None:
    accepted = [name for name in names if dvc_accepts(name)]
    assert accepted and not re.search(r"[^\w.\-]", "".join(accepted))
