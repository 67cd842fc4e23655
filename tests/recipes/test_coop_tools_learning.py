"""A nano observer learns from the exported chats of a team's observer."""

from pathlib import Path

import pytest

from agentfly_core import evaluate, load_experiment, train
from benchmarks import coop_tools_observer
from benchmarks.coop_tools_observer import EXPERIMENT, SETTINGS, exported, imitates
from tests.support.project import ROOT


@pytest.mark.long
def test_an_observer_learns_from_chats_of_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    monkeypatch.setenv("AGENTFLY_THREADS", "1")
    monkeypatch.setenv("AGENTFLY_STORE", str(tmp_path))
    monkeypatch.setattr(coop_tools_observer, "FOLDER", tmp_path / "chats")
    start = imitates(exported(512, "data.seed=0"))
    changes = ["data.seed=0", "seed=1", *SETTINGS, start]
    experiment = load_experiment(EXPERIMENT, *changes, store=str(tmp_path))
    after = train(experiment, "observer")["success_after"]
    assert after >= evaluate(experiment, "base").success + 0.2
