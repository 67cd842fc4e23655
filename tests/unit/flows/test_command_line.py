"""How command lines are parsed, explained and completed."""

import os
import shlex
import sys
from importlib import import_module
from inspect import getdoc
from pathlib import Path

import pytest

from flows.__main__ import main
from flows.cli.app import COMMANDS, agentfly
from flows.cli.arguments import Where
from tests.support.project import ROOT

ROWS = [line for line in COMMANDS.splitlines() if line.startswith(" ")]
TABLE = [row.split(maxsplit=2) for row in ROWS[::2]]
TINY = """
model: nano:calculator
data: {use: "agentfly_core.datasets.arithmetic:arithmetic", train: 64, test: 16}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
steps: 2
"""


def docstring(function: str) -> str:
    module, name = function.split(":")
    return getdoc(getattr(import_module(f"flows.cli.{module}"), name)) or ""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with one experiment, the working directory."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "function", "summary"), TABLE, ids=lambda text: text.split()[0])
def test_a_command_has_its_summary_and_an_example(name: str, function: str, summary: str) -> None:
    assert docstring(function).startswith(summary)
    (example,) = [row for row in ROWS[1::2] if row.startswith(f"    agentfly {name}")]
    _, *words = shlex.split(example)
    assert words[0] == name
    agentfly(words).parse_args(words, exit_on_error=False, print_error=False)


def test_a_commands_help_shows_its_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm-start", "--help"]) == 0
    assert "For example agentfly warm-start quickstart." in capsys.readouterr().out


def test_the_help_lists_all_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name, *_ in TABLE if f"│ {name} " not in shown] == []
    groups = ["Train and evaluate", "Runs", "Nights", "Project and machine", "Options"]
    assert sorted(groups, key=shown.index) == groups


def test_a_commands_help_groups_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--help"]) == 0
    shown = capsys.readouterr().out
    groups = ["Arguments", "Source (one of)", "Order (one of)", "Only episodes", "Where", "Output"]
    assert sorted(groups, key=shown.index) == groups


def test_settings_may_be_mixed_with_options() -> None:
    words = shlex.split("train --new tiny seed=1 --tag a steps=3 --site lab --tag b seed=2")
    _, bound, _ = agentfly(words).parse_args(words, exit_on_error=False)
    options = bound.kwargs["options"]
    assert bound.args == ("tiny", "seed=1", "steps=3", "seed=2")
    assert bound.kwargs["where"] == Where("lab")
    assert (options.new, options.tag) == (True, ("a", "b"))


def test_prefect_gets_every_word() -> None:
    words = ["prefect", "worker", "start", "--pool", "x", "-h", "--", "--help"]
    _, bound, _ = agentfly(words).parse_args(words, exit_on_error=False)
    assert list(bound.args) == words[1:]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("trian tiny", 'Did you mean "train"?'),
        ("train tiny --stoer x", "Did you mean --store?"),
        ("train tiny --update.learning_rate 1e-4", "update.learning_rate=1e-4"),
        ("train tiny --update.learning-rate=1e-4", "update.learning_rate=1e-4"),
        ("train tiny --num_generations 8", "rollout.group_size=8"),
        ("train tiny learning_rate=1e-4", "Did you mean 'update.learning_rate'?"),
        ("train tiny num_generations=8", "Did you mean 'rollout.group_size'?"),
        ("train tiny actor_rollout_ref.rollout.n=8", "Did you mean 'rollout.group_size'?"),
        ("train tiny rollout.groupsize=8", "Did you mean 'group_size'?"),
        (
            "play tiny --live --chat",
            "{--live, --chat} See `agentfly play --help`.",
        ),
        ("up --prefect-port 70000", "--prefect-port. Must be <= 65535."),
        ("doctor more words", "Unused Tokens: ['more', 'words']."),
        ("train", "EXPERIMENT requires an argument. See `agentfly train --help`."),
        ("train tiny --overrides seed=1", "Unknown option: --overrides."),
        ("nights tiny seed=1", "Unused Tokens: ['seed=1']."),
        ("nosuch", "See `agentfly --help`."),
        ("--foo", "See `agentfly --help`."),
        ("open mlfow x", 'Did you mean "mlflow"?'),
        ("score x", "--reward requires an argument"),
    ],
)
def test_a_mistyped_command_gives_one_message_with_a_remedy(
    project: Path, words: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("agentfly: ")
    assert expected in printed.err


def test_a_command_without_a_reader_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["requirements", "cpu"]) == 1
    assert capsys.readouterr().err == ""


def completions(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return the completions that a shell offers after these words."""
    main(["__complete", *words])
    return capsys.readouterr().out.splitlines()


def test_experiments_runs_and_settings_are_completed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("tiny-1a2b3c4d", "\x1b]0;title"):
        (project / "runs" / name).mkdir(parents=True)
    assert completions(capsys, "train", "")[-1:] == ["tiny"]
    assert "rollout.group_size=" in completions(capsys, "train", "tiny", "--new", "roll")
    assert completions(capsys, "show", "")[-1:] == ["tiny-1a2b3c4d"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_names_all_commands(shell: str) -> None:
    script = agentfly([]).generate_completion(shell=shell)  # type: ignore[arg-type]
    assert [name for name, *_ in TABLE if name not in script] == []
    assert str(ROOT) not in script
