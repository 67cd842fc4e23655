"""A new entry of the ledger is emitted, sent for approval and reported."""

import logging
from pathlib import Path

import pytest

from agentfly_core.config.reference import RunPolicy
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightLedger
from agentfly_core.reports.nights.promotion import Verdict
from agentfly_core.store.artifact import Pointer
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
