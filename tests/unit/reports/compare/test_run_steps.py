"""A run shown step by step."""

from pathlib import Path

import pytest
from rich.console import Console

from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.records.intervals import Rate
from agentfly_core.reports.compare.run_steps import Step, run_steps, view
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON
from tests.support.evaluated_runs import finished, project, scored_by_another


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with the run `mine`: two steps, and six of eight test problems solved."""
    monkeypatch.chdir(tmp_path)
    store = project(tmp_path)
    finished(store, "mine", "11010111")
    return store


def printed(steps: list[Step]) -> list[str]:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(view("mine", steps), soft_wrap=True)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_each_step_has_its_metrics_and_the_last_its_success(store: Store) -> None:
    first, last = run_steps(store, "mine")[-2:]
    assert first == Step(1, {"success": 0.5, "tokens": 10.0, "seconds": 5.0}, {}, {})
    assert (last.step, last.held_out["test"].share) == (2, 0.75)


def test_scores_by_other_weights_do_not_replace_its_scores(store: Store) -> None:
    scored_by_another(store, "mine")
    assert run_steps(store, "mine")[-1].held_out["test"].share == 0.75


def test_parts_of_a_reward_are_shown_if_there_are_several(store: Store) -> None:
    where = RunLayout("mine").step(1).metrics
    figures = store.read_json(where)
    assert figures
    means: dict[str, JSON] = {
        "reward_extra/exact/mean": 0.5,
        "reward_extra/exact/tag/mean": 0.9,
        "train/entropy": 0.25,
    }
    store.write_json(where, {**figures, "metrics": {**figures["metrics"], **means}})
    first = run_steps(store, "mine")[-2]
    assert first.to_json() == {
        "step": 1,
        "success": 0.5,
        "tokens": 10.0,
        "entropy": 0.25,
        "seconds": 5.0,
        "parts": {"exact": 0.5, "exact/tag": 0.9},
        "held_out": {},
    }


def test_the_table_has_a_row_per_step_and_bars_below() -> None:
    start = Step(0, {}, {}, {"test": Rate(0.5, (0.1, 0.9), 8)})
    steps = [Step(k, {"success": k / 2, "kl": -1e-9}, {"exact": k / 2}, {}) for k in (1, 2)]
    lines = printed([start, *steps])
    assert lines[1].replace("┃", " ").split() == ["step", "success", "kl", "exact", "test"]
    assert lines[3].replace("│", " ").split() == ["start", "50.0%"]
    assert lines[4].replace("│", " ").split() == ["1", "50.0%", "0.0000", "0.500"]
    assert lines[-1] == f"  mine  {'▁' * 30}{'█' * 30}"
    assert (
        printed([start])[-1] == "No episode of training was solved, so there is no curve to show."
    )


def test_a_run_without_a_finished_step_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match=r"run 'mien'.*Did you mean 'mine'\?"):
        run_steps(store, "mien")
