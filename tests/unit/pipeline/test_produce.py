"""The output of a stage is created once, measured, and reused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from agentfly_core.pipeline.produce import Reused, produce
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.stage_metrics import measured
from agentfly_core.store.store import Store

KEY = ArtifactKey("artifacts/prepare/9f2c", "prepare", "a41f", {"train": "77b0"})


def made(folder: Path) -> Mapping[str, float]:
    (folder / "train.txt").write_text("41+58")
    return {"rows": 1.0}


def unmade(_: Path) -> Mapping[str, float]:
    raise ValueError("no rows")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(str(tmp_path / "store"), tmp_path / "cache")


def test_an_output_has_its_metrics_and_is_reused(store: Store) -> None:
    first = produce(store, KEY, made)
    assert not isinstance(first, Reused)
    assert measured(store, first).metrics == {"rows": 1.0}
    again = produce(store, KEY, unmade)
    assert isinstance(again, Reused)
    assert (again, again.key, hash(again)) == (first, KEY, hash(first))


def test_an_error_of_the_function_leaves_no_output(store: Store) -> None:
    with pytest.raises(ValueError, match="no rows"):
        produce(store, KEY, unmade)
    assert store.get(KEY.uri) is None
