"""Hostile names reach MLflow, Prefect and DVC, and take no neighbour along."""

import json
import random
import re
from pathlib import Path

import pytest
from dvc.utils.serialize import load_yaml
from mlflow import MlflowClient
from prefect.client.schemas.actions import ArtifactCreate

from agentfly_core.runs.tracking.mlflow_client import MlflowRun, MlflowStore
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.foreign_names import (
    dvc_accepts,
    mlflow_key,
    mlflow_text,
    prefect_key,
    storable,
)
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


def original(key: str) -> str:
    """The name that `mlflow_key` escaped without a cut."""
    parts = ["" if part == "_x" else part for part in key.split("/")]
    data = [re.split("_x([0-9a-f]{2})", part) for part in parts]
    raw = [
        b"".join(p.encode() if n % 2 == 0 else bytes.fromhex(p) for n, p in enumerate(each))
        for each in data
    ]
    return "/".join(each.decode(errors="surrogatepass") for each in raw)


@pytest.fixture(scope="module")
def names() -> list[str]:
    return hostile_names()


def test_each_name_can_be_read_back(names: list[str]) -> None:
    keys = {name: mlflow_key(name) for name in names}
    assert len({*keys.values()}) == COUNT
    cut = re.compile("_xlong-[0-9a-f]{16}(/|$)")
    uncut = {name: key for name, key in keys.items() if not cut.search(key)}
    assert len(uncut) > 300
    assert {name: original(key) for name, key in uncut.items()} == {n: n for n in uncut}


def test_mlflow_gets_every_metric_setting_and_tag(
    names: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = MlflowStore.choose(tmp_path, new_store(tmp_path))
    run = MlflowRun(place, "shop", "demo", "4f1c", TIME)
    every = [*NEIGHBOURS[:1], *names, *NEIGHBOURS[1:]]
    run.points({name: float(number) for number, name in enumerate(every)}, 1, TIME)
    run.settings({name: f"setting {name}" for name in every}, {})
    run.tags({name: f"tag {name}" for name in every})
    assert not any("refused" in message for message in caplog.messages)
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
