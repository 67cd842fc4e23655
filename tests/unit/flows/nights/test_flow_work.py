"""What follows an entry of the ledger, and what is told before a night begins."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agentfly_core.pipeline import retention
from agentfly_core.pipeline.loop.deadline import Deadline
from agentfly_core.pipeline.retention import NoSpace
from agentfly_core.reports.nights.night_ledger import NightLedger
from flows.nights import flow_work
from flows.nights.flow_work import FlowWork
from tests.support.experiments import experiment as experiment_in

NIGHT = "nightly-2026-11-21"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowWork:
    experiment = experiment_in(tmp_path)
    monkeypatch.setattr(flow_work, "get_run_logger", lambda: logging.getLogger("nights"))
    monkeypatch.setattr(flow_work, "tell", lambda *_: None)
    ledger = NightLedger(experiment.store, experiment.name)
    return FlowWork(experiment, ledger, [], Deadline.after(None))


def test_a_person_is_asked_before_anything_that_is_only_reported(
    work: FlowWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(flow_work, "ask", lambda *_: done.append("asked"))
    monkeypatch.setattr(flow_work, "report_aliases", lambda *_: done.append("aliases"))
    monkeypatch.setattr(flow_work, "report_night", lambda *_: done.append("report"))
    work.happened(work.ledger.append(NIGHT, "awaits_approval", details={"verdict": {}}))
    assert done == ["asked", "aliases", "report"]


def test_a_disk_that_cannot_hold_a_night_is_told(
    work: FlowWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise NoSpace("The disk has 0.1 GiB free.")

    told = []
    monkeypatch.setattr(retention, "require_space_for_night", full)
    monkeypatch.setattr(flow_work, "experiment_of_flow", lambda *_: work.experiment)
    monkeypatch.setattr(flow_work, "tell", lambda *said: told.append(said))
    with pytest.raises(NoSpace):
        work.require_space(NIGHT, [])
    assert told == [("no_space", NIGHT, "tiny", "The disk has 0.1 GiB free.")]
