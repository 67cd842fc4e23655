"""A nano model that fills masks first solves more questions after four labelled ones."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from agentfly_core import load_experiment, train
from benchmarks.mask_search import EXPERIMENT, MASKS, QUESTIONS, START_SEED, settings
from tests.support.project import ROOT


@pytest.mark.long
def test_masks_before_questions_help_at_equal_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    monkeypatch.setenv("AGENTFLY_THREADS", "1")

    def success(run: str, changes: Sequence[str]) -> float:
        experiment = load_experiment(EXPERIMENT, *changes, store=str(tmp_path))
        return train(experiment, run)["success_after"]

    success("start", [f"seed={START_SEED}", "steps=0"])
    success("masks", settings(4, "start", 32, MASKS))
    masks_first = success("masks-then-questions", settings(4, "masks", 8, QUESTIONS))
    questions_alone = success("questions-alone", settings(4, "start", 40, QUESTIONS))
    assert masks_first >= questions_alone + 0.05
