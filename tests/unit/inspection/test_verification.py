"""A run that was built again is compared with the first file by file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentfly_core.artifacts import transfer
from agentfly_core.artifacts.store import Artifact, ArtifactKey, Store
from agentfly_core.inspection.verification import Verdict, differing


def store(folder: Path) -> Store:
    return Store.at(str(folder / "store"), folder / "cache")


def published(where: Store, uri: str, **files: str) -> Artifact:
    """An artifact with these files; their names lack the ending."""
    with where.publish(ArtifactKey(uri, "rollout", "9f2c", {})) as folder:
        for name, text in files.items():
            (folder / f"{name}.json").write_text(text)
    return where.artifact(uri)


@pytest.mark.parametrize(
    ("again", "words"),
    [
        ({"episodes": "[1]", "scores": "[2]", "metrics": '{"seconds": 9}'}, "agrees"),
        ({"episodes": "[7]", "scores": "[2]"}, "differs in episodes.json"),
        ({"episodes": "[1]"}, "differs in scores.json"),
        ({}, "was not built"),
    ],
)
def test_an_artifact_agrees_where_all_but_its_times_does(
    tmp_path: Path, again: dict[str, str], words: str
) -> None:
    first, second = store(tmp_path / "first"), store(tmp_path / "second")
    made = published(first, "runs/demo/x", episodes="[1]", scores="[2]", metrics='{"seconds": 3}')
    if again:
        published(second, "runs/demo/x", **again)
    verdict = Verdict("step 1 rollout 0", made.uri, differing(first, made, second))
    assert (verdict.words, verdict.agrees) == (words, words == "agrees")


def test_what_is_copied_keeps_its_key_and_digest_and_is_copied_once(tmp_path: Path) -> None:
    first, second = store(tmp_path / "first"), store(tmp_path / "second")
    made = published(first, "runs/demo/policy", weights="[1]")
    assert transfer.copy([made], first, second) == [made]
    assert (second.artifact(made.uri), second.key_of(made.uri)) == (made, first.key_of(made.uri))
    assert json.loads((second.open(made) / "weights.json").read_text()) == [1]
    assert transfer.copy([made], first, second) == []
