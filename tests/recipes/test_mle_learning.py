"""A nano model learns to choose pipelines for competitions that were not trained."""

from pathlib import Path
from statistics import fmean

import pytest

from agentfly_core import load_experiment, train
from benchmarks.score_learning import scores_of
from tests.support.project import ROOT


@pytest.mark.long
def test_pipelines_rank_higher_after_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    monkeypatch.setenv("AGENTFLY_THREADS", "1")
    experiment = load_experiment("mle", "seed=1", store=str(tmp_path))
    train(experiment, "mle")
    before, after = scores_of(experiment, "mle", "human_rank")
    assert fmean(after.values()) >= fmean(before.values()) + 0.2
