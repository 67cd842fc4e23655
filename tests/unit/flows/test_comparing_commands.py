"""`agentfly compare` and `agentfly fork`, on runs that are in a store."""

import json
import re
from pathlib import Path

import pytest

from agentfly_core.store.store import Store
from flows.__main__ import main
from flows.cli import training
from flows.cli.arguments import Where
from flows.cli.training import RunOptions
from tests.support.evaluated_runs import finished, project

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The working directory with three runs of two settings, one of them with two seeds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    store = project(tmp_path)
    finished(store, "slow", "11000000")
    for seed, solved in enumerate(("11111110", "11111100")):
        finished(store, f"fast-{seed}", solved, f"seed={seed}", "update.learning_rate=1e-5")
    return store


RUNS = ("compare", "slow", "fast-0", "fast-1")
SENTENCE = "update.learning_rate=1e-5 solves 56.2 percentage points more problems than 1e-6 ("


def test_compare_prints_a_row_a_setting_curves_and_a_sentence(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(RUNS) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in re.split("[│┃]", line)] for line in lines[1:]]
    rows = [row for row in rows if len(row) > 1]
    assert lines[0].strip() == "8 test problems"
    assert [row[:4] for row in rows] == [
        ["", "update.", "", ""],
        ["run", "learning_rate", "seed", "solved"],
        ["slow@2", "1e-6", "0", "25.0%"],
        ["fast-0@2 and 1 more seed", "1e-5", "0, 1", "81.2%"],
    ]
    (title,) = [line for line in lines if "over sampled tokens" in line]
    # two steps of 8 episodes of 10 tokens each
    assert title == "success in training over sampled tokens, 0 to 160; ▁ 50%, █ 60%"
    assert lines[-1].startswith(SENTENCE)
    assert lines[-1].endswith(", 2 against 1 seed).")


def test_compare_writes_one_json_document(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUNS, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sentence"].startswith(SENTENCE)
    slow, fast = document["groups"]
    assert (slow["policies"], slow["difference"]) == (["slow@2"], None)
    assert fast["success"]["value"] == 0.8125
    assert fast["difference"]["over"] == "problems and seeds"
    (curve,) = document["learning"]["update.learning_rate=1e-6"]
    assert curve == {
        "success": pytest.approx([0.5, 0.6]),
        "steps": [1.0, 2.0],
        "sampled tokens": [80.0, 160.0],
        "seconds": [5.0, 10.0],
    }


def test_compare_draws_a_picture(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUNS, "--png", "rates.png"]) == 0
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.splitlines()[-1] == "The picture is rates.png"


def test_compare_needs_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare"]) == 2
    assert "parameter RUN requires an argument." in capsys.readouterr().err


def test_the_runs_are_compared_with_the_first(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "fast-1", *RUNS[1:]]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("update.learning_rate=1e-6 solves 56.2 percentage points fewer")


Trained = tuple[str, tuple[str, ...], dict[str, object]]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Trained]:
    """Calls of `train`, which is replaced."""
    calls: list[Trained] = []
    monkeypatch.setattr(
        training, "train", lambda name, *words, **of: calls.append((name, words, of))
    )
    return calls


def test_fork_trains_with_the_runs_settings_and_the_overrides(
    store: Store, trained: list[Trained]
) -> None:
    words = ["fork.optimizer_state=fresh", "update.epochs=2", "steps=5", "--run", "new"]
    assert main(["fork", "fast-1@2", *words]) == 0
    ((experiment, overrides, options),) = trained
    assert experiment == "tiny"
    assert options == {"where": Where("local"), "options": RunOptions("new")}
    assert list(overrides) == [
        "seed=1",
        "update.learning_rate=1e-05",
        'fork={"run":"fast-1","step":2,"optimizer_state":"kept"}',
        *words[:3],
    ]


def test_fork_refuses_a_step_without_a_learner_state(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = store.names("runs")
    assert main(["fork", "slow@1"]) == 2
    message = "agentfly: The learner state of slow@1 is not kept. "
    errors = capsys.readouterr().err
    assert errors.startswith(message)
    assert "this run has none" in errors
    assert store.names("runs") == runs


def test_fork_names_the_last_step_if_the_step_is_missing(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fork", "fast-1@7"]) == 2
    assert "The run 'fast-1' has no policy of step 7 in" in capsys.readouterr().err


@pytest.mark.parametrize("origin", ["slow", "slow@0", "slow@x"])
def test_fork_needs_a_step(store: Store, origin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fork", origin]) == 2
    assert f"Got '{origin}', expected RUN@STEP with a step of 1" in capsys.readouterr().err


def test_compare_names_the_edited_module(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for name, digest in (("before", "5d41402a9f"), ("after", "9f2c1b3a4e")):
        finished(store, name, "11010111", "seed=7")
        record = store.read_json(f"runs/{name}/run.json")
        record["settings"]["code"]["update"] = {"my_shop": digest}
        store.write_json(f"runs/{name}/run.json", record)
    assert main(["compare", "before", "after"]) == 0
    printed = capsys.readouterr().out
    assert "code.my_shop" in printed
    assert "9f2c1b3a" in printed
