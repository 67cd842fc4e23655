"""Artifacts that are copied from one store to another."""

import json
from pathlib import Path

import pytest

from agentfly_core.store import transfer
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store, _opened
from agentfly_core.system.formats.checksummed_json import Damaged


def store(folder: Path) -> Store:
    return Store.at(str(folder / "store"), folder / "cache")


def published(where: Store, uri: str, **files: str) -> Artifact:
    """An artifact with these JSON files."""
    with where.publish(ArtifactKey(uri, "rollout", "9f2c", {})) as folder:
        for name, text in files.items():
            (folder / f"{name}.json").write_text(text)
    return where.artifact(uri)


def test_a_copy_keeps_key_and_digest_and_happens_once(tmp_path: Path) -> None:
    first, second = store(tmp_path / "first"), store(tmp_path / "second")
    once = published(first, "runs/demo/policy", weights="[1]")
    assert transfer.copy([once], first, second) == [once]
    assert (second.artifact(once.uri), second.artifact(once.uri).key) == (
        once,
        first.artifact(once.uri).key,
    )
    assert json.loads((second.open(once) / "weights.json").read_text()) == [1]
    assert transfer.copy([once], first, second) == []


@pytest.mark.parametrize("uri", ["runs/demo/policy", "runs/demo/policy/base", "artifacts/mine"])
def test_a_copy_replaces_no_artifact_of_the_target(tmp_path: Path, uri: str) -> None:
    first, second = store(tmp_path / "first"), store(tmp_path / "second")
    published(second, "runs/demo/policy", weights="[7]")
    (second.root / "artifacts/mine").mkdir(parents=True)
    once = published(first, uri, weights="[1]")
    with pytest.raises(ValueError, match=f"{uri} already exists"):
        transfer.copy([once], first, second)
    assert (second.root / "runs/demo/policy/weights.json").read_text() == "[7]"


def test_nothing_is_copied_where_an_artifact_is_damaged(tmp_path: Path) -> None:
    first, second = store(tmp_path / "first"), store(tmp_path / "second")
    once = [published(first, f"artifacts/{name}", weights="[1]") for name in ("base", "policy")]
    (first.root / "artifacts/policy/weights.json").unlink()
    _opened.clear()
    with pytest.raises(Damaged, match=r"policy/weights\.json"):
        transfer.copy(once, first, second)
    assert second.names("artifacts") == []
