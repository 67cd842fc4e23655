"""`agentfly promote` writes the ledger only if the next night can start from the policy."""

from pathlib import Path

import pytest

from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment import keys
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.reports.nights.night_ledger import Champion, NightLedger
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import ArtifactKey
from flows import approval
from flows.__main__ import main
from flows.experiments import load_experiment

TINY = """
model: nano:calculator
data: {use: "agentfly_core.datasets.arithmetic:arithmetic", train: 64, test: 16}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
steps: 2
"""
RUN = "nightly-2026-11-21"


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """A project folder with one experiment and a run with the policy of each step."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(approval, "report_aliases", lambda *_: None)
    experiment = load_experiment("tiny", [], "local", "")
    with opened(experiment, RUN) as run:
        for step in (1, 2):
            _publish(experiment, _policy(run.layout.step(step).policy))
    return experiment


def test_promoting_the_champion_again_changes_nothing(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = NightLedger(experiment.store, "tiny")
    for where in (f"{RUN}@1", RUN, f"run:{RUN}@2"):
        assert main(["promote", where]) == 0
    assert f"run:{RUN}@2 is already the champion of tiny." in capsys.readouterr().out
    promoted = [str(entry.champion.reference) for entry in ledger.read().entries if entry.champion]
    assert promoted == [f"run:{RUN}@1", f"run:{RUN}@2"]
    assert main(["demote", "tiny"]) == 0
    assert f"run:{RUN}@2 is no longer the champion. The champion is run:{RUN}@1." in (
        capsys.readouterr().out
    )


def test_promote_refuses_an_experiment_without_its_file(experiment: Experiment) -> None:
    Path("conf/tiny.yaml").unlink()
    assert main(["promote", RUN]) != 0
    assert NightLedger(experiment.store, "tiny").read().entries == []


def test_promote_refuses_a_step_without_a_needed_learner_state(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("conf/tiny.yaml").write_text(f"{TINY}update: {{optimizer_state: parent}}\n")
    last = experiment.store.artifact(f"runs/{RUN}/steps/000002/policy")
    _publish(experiment, keys.learner(experiment.store.artifact(last.uri).key))
    assert main(["promote", f"{RUN}@1"]) != 0
    assert f"run:{RUN}@1 has no learner state" in capsys.readouterr().err
    assert main(["promote", f"{RUN}@2"]) == 0
    champion = NightLedger(experiment.store, "tiny").read().champion
    assert champion == Champion(RunPolicy(RUN, 2), last)


def test_nights_fails_if_an_entry_of_the_ledger_is_lost(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["promote", RUN]) == 0
    experiment.store.remove("nights/tiny/000001.json")
    assert main(["nights", "tiny"]) != 0
    printed = capsys.readouterr()
    assert "nights/tiny/000001.json" in printed.err and "no champion" not in printed.out


def _policy(uri: str) -> ArtifactKey:
    return ArtifactKey(uri, "update", uri, {})


def _publish(experiment: Experiment, target: ArtifactKey) -> None:
    with experiment.store.publish(target) as folder:
        (folder / "config.json").write_text(f'{{"name": "{target.uri}"}}')
