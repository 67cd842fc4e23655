"""The `agentfly list` and `agentfly tag` command lines."""

import json
from pathlib import Path

import pytest

from agentfly_core.runs.run import opened
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.store.lock import local_lock
from agentfly_core.store.store import Store
from flows.__main__ import main
from flows.experiments import load_experiment
from tests.support.experiments import TINY
from tests.support.imported_packages import HEAVY, loaded


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
    assert capsys.readouterr().out == "No run matches three (runs in the store: 2).\n"


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


def test_a_tag_needs_no_mlflow(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tag", "one", "baseline"]) == 0
    assert capsys.readouterr().out == "one: baseline\n"


def test_a_tag_that_reads_like_a_number_is_text(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tag", "two", "1.10", "true"]) == 0
    capsys.readouterr()
    assert names(capsys, "--filter", "tag=1.10", "--filter", "tag=true") == ["two"]
