"""Nano models earn more on problems that were not trained: competitions and sizes of buildings."""

from pathlib import Path
from statistics import fmean

import pytest

from agentfly_core import load_experiment, train
from benchmarks.score_learning import scores_of
from tests.support.project import ROOT


@pytest.mark.long
@pytest.mark.parametrize(
    ("recipe", "score"), [("mle", "human_rank"), ("blueprint", "building/iou")]
)
def test_a_score_rises_by_a_fifth_on_untrained_problems(
    recipe: str, score: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    monkeypatch.setenv("AGENTFLY_THREADS", "1")
    experiment = load_experiment(recipe, "seed=1", store=str(tmp_path))
    train(experiment, recipe)
    before, after = scores_of(experiment, recipe, score)
    assert fmean(after.values()) >= fmean(before.values()) + 0.2
