"""`agentfly sweep` trains its runs in sequence and continues after a failed one."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from agentfly_core.runs.run_tags import change_tags, tags_of
from agentfly_core.store.store import Store
from flows import sweep as sweeping
from flows.__main__ import main
from flows.cli import comparing
from tests.support.evaluated_runs import finished, project

pytestmark = pytest.mark.slow

COMMAND = ["sweep", "tiny", "update.learning_rate=1e-5,3e-5", "--seeds", "2", "--name", "rates"]


class Trained:
    """Runs that finish at once; `fate` has the exit status by number of the call."""

    def __init__(self, store: Store, fate: dict[int, int]) -> None:
        self.store, self.fate, self.words = store, fate, list[Sequence[str]]()

    def __call__(self, words: Sequence[str]) -> int:
        self.words.append(words)
        if code := self.fate.get(len(self.words), 0):
            return code
        end = words.index("--run")
        change_tags(self.store, words[end + 1], [words[end + 3]], [])
        solved = "11111100" if "update.learning_rate=3e-5" in words else "11100000"
        finished(self.store, words[end + 1], solved, *words[2:end])
        return 0

    @property
    def settings(self) -> list[Sequence[str]]:
        return [words[2 : words.index("--run")] for words in self.words]


Train = Callable[[dict[int, int]], Trained]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sweeping, "prefect_api", lambda places: nullcontext(lambda: None))
    return project(tmp_path)


@pytest.fixture
def train(store: Store, monkeypatch: pytest.MonkeyPatch) -> Train:
    """`train({2: 1})`: the second run ends with the status 1."""

    def replace_train(fate: dict[int, int]) -> Trained:
        trained = Trained(store, fate)
        monkeypatch.setattr(sweeping, "_command", trained)
        return trained

    return replace_train


def test_a_run_is_announced_with_its_differing_settings(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    train({})
    assert main(["sweep", "tiny", "update.learning_rate=1e-5,3e-5", "evaluate.every=1"]) == 0
    assert "\nRun 2 of 2: update.learning_rate=3e-5\n" in capsys.readouterr().out
    assert main(["sweep", "tiny", "update.learning_rate=7e-5", "--name", "one"]) == 0
    assert "\nRun 1 of 1: tiny-" in capsys.readouterr().out


def test_a_sweep_runs_the_grid_and_ends_with_a_sentence(
    store: Store,
    train: Train,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trained = train({})
    assert main(COMMAND) == 0
    assert trained.settings == [
        ["update.learning_rate=1e-5", "seed=0"],
        ["update.learning_rate=3e-5", "seed=0"],
        ["update.learning_rate=1e-5", "seed=1"],
        ["update.learning_rate=3e-5", "seed=1"],
    ]
    assert trained.words[0][-2:] == ["--site", "local"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Sweep rates: 4 runs, 0 finished."
    assert "Run 2 of 4: update.learning_rate=3e-5 seed=0" in lines
    assert lines[-2].startswith("update.learning_rate=3e-5 solves 37.5 percentage points more ")
    assert lines[-2].endswith(", 2 seeds each): no significant difference.")
    assert lines[-1] == "The same again: agentfly compare sweep:rates"

    assert main(["compare", "sweep:rates"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == lines[-2]


def test_a_sweep_continues_after_a_kill(
    store: Store,
    train: Train,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train({3: sweeping.INTERRUPTED})
    assert main(COMMAND) == 130
    again = train({})
    assert main(COMMAND) == 0
    assert again.settings == [
        ["update.learning_rate=1e-5", "seed=1"],
        ["update.learning_rate=3e-5", "seed=1"],
    ]
    assert "Sweep rates: 4 runs, 2 finished." in capsys.readouterr().out


def test_a_run_trained_before_a_sweep_belongs_to_it(
    store: Store, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    train({})
    assert main(["sweep", "tiny", "update.learning_rate=1e-5", "--seeds", "2"]) == 0
    (run, _) = store.names("runs")
    assert main(COMMAND) == 0
    assert "rates" in tags_of(store, run)
    assert main(["compare", "sweep:rates", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out.splitlines()[-1])["groups"]
    assert [len(group["policies"]) for group in groups] == [2, 2]


def test_a_sweep_with_a_refused_run_starts_no_run(
    store: Store, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = train({})
    assert main(["sweep", "tiny", "update.mini_batches=1,9999"]) == 2
    assert "agentfly: update.mini_batches is 9999, expected" in capsys.readouterr().err
    assert trained.words == []


def test_a_failed_run_does_not_end_the_sweep_and_is_reported(
    store: Store,
    train: Train,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trained = train({2: 1})
    assert main(COMMAND) == 1
    assert len(trained.words) == 4
    printed = capsys.readouterr()
    assert "1 against 2 seeds" in printed.out
    failed = trained.words[1][trained.words[1].index("--run") + 1]
    assert printed.err.splitlines() == [
        f"{failed} failed: update.learning_rate=3e-5 seed=0",
        "Correct the causes. To continue: agentfly sweep tiny "
        "update.learning_rate=1e-5,3e-5 --seeds 2 --name rates",
    ]


def test_values_and_seeds_may_be_added_to_a_sweep(
    store: Store,
    train: Train,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train({})
    assert main(COMMAND) == 0
    more = train({})
    words = ["sweep", "tiny", "update.learning_rate=1e-5,3e-5,1e-4", "--name", "rates"]
    assert main([*words, "--seeds", "3"]) == 0
    assert len(more.words) == 9 - 4
    capsys.readouterr()
    assert main(["compare", "sweep:rates", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [len(group["policies"]) for group in groups] == [3, 3, 3]


def test_a_sweep_is_checked_as_a_whole_before_its_first_run(
    store: Store,
    train: Train,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trained = train({})
    assert main(["sweep", "tiny", "rollout.group_size=8,1"]) == 2
    assert "rollout.group_size is 1" in capsys.readouterr().err
    assert main(["sweep", "tiny", "steps=2,2"]) == 2
    assert "Two combinations of the listed values have the same settings" in capsys.readouterr().err
    assert trained.words == []


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("data.test=8,4", "they were evaluated on different problems"),
        (
            "rewards={agentfly_core.rewards.exact:exact: 1},"
            "{agentfly_core.rewards.format:tool_format: 1}",
            "evaluate.goal is agentfly_core.rewards.exact:exact in ",
        ),
        ("update.keep_learner=1,2", "have the same settings and the same seed"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_at_the_start(
    store: Store, train: Train, capsys: pytest.CaptureFixture[str], listed: str, message: str
) -> None:
    trained = train({})
    assert main(["sweep", "tiny", listed]) == 2
    assert message in capsys.readouterr().err
    assert trained.words == []


def test_failed_runs_are_reported_even_without_a_comparison(
    store: Store,
    train: Train,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*_: object) -> None:
        raise ValueError("The dataset is not there.")

    train({2: 1})
    monkeypatch.setattr(comparing, "compared_runs", lost)
    assert main(COMMAND) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "failed: update.learning_rate=3e-5 seed=0" in errors[0]
    assert "agentfly: The dataset is not there." in errors


def test_a_tag_without_runs_is_refused(
    store: Store,
    train: Train,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train({})
    assert main(COMMAND) == 0
    assert main(["compare", "sweep:rate"]) == 2
    assert "has the tag 'rate'; `agentfly list`" in capsys.readouterr().err


def test_each_run_is_its_own_process_at_the_same_prefect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "flows.py").write_text("import os, sys; sys.exit(len(sys.argv) + 40)")
    monkeypatch.setattr(sweeping, "finding_ours", lambda: {"PYTHONPATH": str(tmp_path)})
    monkeypatch.chdir(tmp_path)
    assert sweeping._command(["train", "tiny"]) == 43
