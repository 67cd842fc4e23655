"""The `agentfly list` and `agentfly tag` command lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentfly_core.runs.run import opened
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.store.lock import local_lock
from agentfly_core.store.store import Store
from agentfly_core.tracking.mlflow_client import MlflowStore
from agentfly_core.tracking.mlflow_run import MlflowRun
from flows.__main__ import main
from flows.experiments import load_experiment
from tests.support.experiments import TINY
from tests.support.loaded import HEAVY, loaded
from tests.support.mlflow_store import new_store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A project folder with the runs `one` and `two` of different seeds."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name, seed in (("one", 0), ("two", 1)):
        with opened(load_experiment("tiny", [f"seed={seed}"], "local", ""), name):
            pass
    return Store.at(".", tmp_path)


def names(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["list", "--json", *words]) == 0
    return [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]]


def test_runs_are_filtered_and_sorted(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(capsys, "--sort", "time") == ["two", "one"]
    assert names(capsys, "--filter", "seed=1", "--filter", "state=stopped") == ["two"]
    assert main(["list", "--filter", "three"]) == 0
    assert capsys.readouterr().out == "None of 2 runs matches three.\n"


def test_listing_runs_loads_no_heavy_package(store: Store) -> None:
    assert loaded(store.root, "list") & HEAVY == set()


def test_tags_of_an_active_run_are_added_and_removed(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    with local_lock(store.root / "runs/one"):
        assert main(["tag", "one", "baseline", "good"]) == 0
        assert main(["tag", "one", "--remove", "good"]) == 0
    assert tags_of(store, "one") == ("baseline",)
    capsys.readouterr()
    assert names(capsys, "--filter", "tag=baseline") == ["one"]
    assert main(["tag", "one", "two words"]) == 2
    assert "Got the tag 'two words'" in capsys.readouterr().err
    assert main(["tag", "on", "x"]) == 2
    assert "Did you mean 'one'" in capsys.readouterr().err


@pytest.mark.slow
def test_mlflow_gets_the_tags_of_a_synced_run(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    new_store(store.root / ".agentfly")
    place = MlflowStore.choose(store.root / ".agentfly")
    run = MlflowRun(place, "tiny", "one", "uid", 0)
    store.write_json("runs/one/links.json", {"mlflow_run_ids": [run.run_id]})
    assert main(["tag", "one", "baseline"]) == 0
    assert capsys.readouterr().out == "one: baseline\n"
    assert run.client.get_run(run.run_id).data.tags["agentfly.tags"] == "baseline"


def test_tags_that_mlflow_missed_are_kept_for_later(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    store.write_json("runs/one/links.json", {"mlflow_run_ids": ["5f0e"]})
    store.write_json("runs/one/mlflow.json", {"synced": "9f2c"})
    assert main(["tag", "one", "baseline"]) == 0
    output = capsys.readouterr().out
    assert "MLflow was not reached" in output
    assert "agentfly train tiny --run one" in output
    assert tags_of(store, "one") == ("baseline",)
    assert store.read_json("runs/one/mlflow.json") is None  # the next sync is not skipped
