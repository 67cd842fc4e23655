"""A new entry of the ledger is emitted, sent for approval and reported."""

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightLedger
from agentfly_core.reports.nights.promotion_gate import Verdict
from agentfly_core.store.artifact import ArtifactKey, Pointer
from flows.nights import flow_work
from flows.nights.flow_work import FlowWork
from tests.support.experiments import experiment as experiment_in

NIGHT = "nightly-2026-11-21"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowWork:
    experiment = experiment_in(tmp_path)
    monkeypatch.setattr(flow_work, "get_run_logger", lambda: logging.getLogger("nights"))
    monkeypatch.setattr(flow_work, "emit", lambda *_: None)
    ledger = NightLedger(experiment.store, experiment.name)
    return FlowWork(experiment, ledger, [], None)


def test_approval_is_requested_before_reports(
    work: FlowWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(flow_work, "request_approval", lambda *_: done.append("asked"))
    monkeypatch.setattr(flow_work, "report_aliases", lambda *_: done.append("aliases"))
    monkeypatch.setattr(flow_work, "report_night", lambda *_: done.append("report"))
    champion = Champion(RunPolicy(NIGHT, 0), Pointer("runs/n20/policy", "aa"))
    judgement = Judgement(Verdict(()), champion, champion)
    work.happened(work.ledger.append(NIGHT, "awaits_approval", details=judgement))
    assert done == ["asked", "aliases", "report"]


def test_a_night_without_disk_space_does_not_begin(
    work: FlowWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, model = work.experiment, ArtifactKey("artifacts/model/tiny", "model", "0", {})
    monkeypatch.setattr(FlowWork, "_experiment", lambda *_: here)
    monkeypatch.setattr(StageKeys, "model", lambda _: model)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    work.require_space(NIGHT, [])  # before there is a model
    with here.store.publish(model) as folder:
        (folder / "model.safetensors").write_bytes(bytes(1000))
    with pytest.raises(OSError, match="Free some space"):
        work.require_space(NIGHT, [])
    needed = sum(here.sizes(here.store.artifact(model.uri)))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    work.require_space(NIGHT, [])
