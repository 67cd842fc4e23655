"""A policy is shared by a folder or a bucket; only the run's writer fetches it."""

from pathlib import Path

import pytest

from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.lock import Locked, local_lock
from flows.cli import sharing
from tests.support.experiments import experiment


def test_a_run_is_not_fetched_while_a_process_writes_it(tmp_path: Path) -> None:
    with opened(experiment(tmp_path), "demo") as run:
        with run.store.publish(ArtifactKey(run.layout.step(1).policy, "update", "key", {})) as made:
            (made / "model.safetensors").write_text("1")
    mine = tmp_path / "mine"
    with local_lock(mine / "runs/demo"), pytest.raises(Locked, match="'demo' is held by"):
        sharing.pull("demo", remote=run.store.uri, store_uri=str(mine))
    assert not (mine / "runs/demo/run.json").exists()
    sharing.pull("demo", remote=run.store.uri, store_uri=str(mine))
    assert (mine / "runs/demo/steps/000001/policy/model.safetensors").read_text() == "1"
