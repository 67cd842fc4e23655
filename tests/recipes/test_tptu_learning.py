"""A nano model learns to plan combinations of sub-questions that were not trained."""

from pathlib import Path

import pytest

from agentfly_core import load_experiment, train
from tests.support.project import ROOT


@pytest.mark.long
def test_combinations_that_were_not_trained_are_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    summary = train(load_experiment("tptu", "seed=1", store=str(tmp_path)))
    assert summary["success_after"] >= summary["success_before"] + 0.2
