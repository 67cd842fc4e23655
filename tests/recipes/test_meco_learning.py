"""A gate saves calls of a nano model, and a probe predicts the answers of SmolLM2."""

from pathlib import Path

import pytest

from agentfly_core import load_experiment, train
from agentfly_core.recipes.meco.fitting import fit_gate
from benchmarks.meco import SMOLLM2, gates, predictors
from tests.support.project import ROOT

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")


def test_a_gate_saves_calls_and_keeps_the_answers(tmp_path: Path) -> None:
    experiment = load_experiment("meco", "seed=1", store=str(tmp_path))
    train(experiment, "meco")
    rows = fit_gate(experiment, "run:meco", folder=str(tmp_path / "probes"))
    (file,) = [str(one["file"]) for one in rows if one["file"]]
    arms = gates(experiment, "run:meco", file)
    always, force = arms["always"], arms["force"]
    assert force.calls_of("fixed", "changing") <= 0.6 * always.calls_of("fixed", "changing")
    assert force.success >= always.success - 0.02
    assert arms["random"].success <= always.success - 0.15
    assert arms["never"].success <= always.success - 0.3
    # the rate of calls follows the questions
    assert force.calls_of("fixed") <= 0.2
    assert force.calls_of("changing") >= 0.8


@pytest.mark.smollm2
def test_states_of_smollm2_predict_right_answers(tmp_path: Path) -> None:
    experiment = load_experiment("meco", *SMOLLM2, "seed=1", store=str(tmp_path))
    aurocs = {row["predictor"]: float(row["auroc"]) for row in predictors(experiment)}
    assert aurocs["logreg"] >= max(0.75, aurocs["first_token"] + 0.1)
    assert 0.35 <= aurocs["shuffled labels"] <= 0.65
