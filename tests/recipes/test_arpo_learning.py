"""Forks by entropy reach the goal with fewer executed calls than chains."""

from pathlib import Path

import pytest

from agentfly_core import load_experiment, train
from benchmarks.arpo import read
from tests.support.project import ROOT


@pytest.mark.long
def test_forks_by_entropy_need_fewer_calls_than_chains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    calls = {}
    for mode in ("entropy", "never"):
        changes = ("seed=1", "steps=12", "data.test=8", f"rollout.branching.mode={mode}")
        experiment = load_experiment("arpo", *changes, store=str(tmp_path))
        train(experiment, mode)
        calls[mode] = read(experiment.store, mode, steps=12).until_goal
    assert calls["entropy"] <= 0.8 * calls["never"]
