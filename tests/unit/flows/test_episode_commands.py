"""The `agentfly show` command line."""

import json
from pathlib import Path

import pytest

from flows.__main__ import main
from tests.support import evaluated_runs
from tests.support.evaluated_runs import finished
from tests.support.stored_run import stored_run


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project folder with the run `demo`."""
    stored_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("step", ["demo@6", "run:demo@6"])
def test_a_step_is_named_with_its_run(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", step, "--worst", "1"]) == 0
    printed = capsys.readouterr().out
    assert "demo, step 6: 4 episodes, 3 scored, mean reward 0.500" in printed
    assert "chain 3; unscored (the episode failed)" in printed


def test_filters_combine_and_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--above", "0.2", "--below", "0.8", "--ending", "terminal", "--chain", "2"]
    assert main(["show", "demo@6", *words, "--text", "98", "--best", "9", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [document["episodes"], document["matching"]] == [4, 1]
    assert [each["reward"] for each in document["shown"]] == [0.5]


def test_two_steps_are_shown_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "demo@6", "--problem", "add-41-58", "--against", "7", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["against"] == "run:demo@7"
    assert [each["shown"]["chain"] for each in document["shown"]] == [1]
    assert main(["show", "demo@6", "--against", "dem@7"]) == 0
    assert "1 episode of the same problems" in capsys.readouterr().out


def test_steps_of_a_run_are_shown_instead_of_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(evaluated_runs.project(tmp_path), "mine", "11010111")
    assert main(["show", "mine", "--steps", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"] == "mine"
    assert [step.get("success") for step in document["steps"]][-2:] == [0.5, pytest.approx(0.6)]
    assert main(["show", "mine", "--steps"]) == 0
    assert "success in training over steps" in capsys.readouterr().out
    assert main(["show", "mine", "--worst", "3", "--steps"]) == 2
    assert main(["show", "mine@2", "--steps"]) == 2
    errors = capsys.readouterr().err
    assert "Mutually exclusive arguments: {--steps, --worst}" in errors
    assert "There is no run 'mine@2'" in errors


def test_a_missing_step_tool_or_ending_lists_the_existing_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["show", "demo@9"]) == 2
    error = capsys.readouterr().err
    assert "Episodes of step 9 of the run " in error
    assert "Steps with episodes: 6 to 7." in error
    assert main(["show", "nope"]) == 2
    assert "There is no run 'nope' in " in (error := capsys.readouterr().err)
    assert "Known: demo" in error
    assert main(["show", "demo@6", "--problem", "add-41-5"]) == 2
    assert "has no problem 'add-41-5'. Did you mean 'add-41-58'?" in capsys.readouterr().err
    assert main(["show", "demo@6", "--ending", "no_tool_cals"]) == 2
    assert 'Did you mean "no_tool_calls"?' in capsys.readouterr().err
    assert main(["show", "demo@6", "--ending", "agent_error"]) == 0
    assert ", 0 matching\n" in capsys.readouterr().out
