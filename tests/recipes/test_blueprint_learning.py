"""A nano model learns to draw buildings of sizes that were not trained."""

from pathlib import Path
from statistics import fmean

import pytest

from agentfly_core import load_experiment, train
from benchmarks.score_learning import scores_of
from tests.support.project import ROOT


@pytest.mark.long
def test_buildings_are_closer_to_their_orders_after_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    monkeypatch.setenv("AGENTFLY_THREADS", "1")
    experiment = load_experiment("blueprint", "seed=1", store=str(tmp_path))
    train(experiment, "blueprint")
    before, after = scores_of(experiment, "blueprint", "building/iou")
    assert fmean(after.values()) >= fmean(before.values()) + 0.2
