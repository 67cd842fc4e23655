"""Missed nights are found by the schedule and the nights that were."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pytest

from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.store.store import Store
from flows.nights import events, missed
from flows.nights.missed import note_missed


@pytest.fixture
def ledger(tmp_path: Path) -> NightLedger:
    return NightLedger(Store.at(str(tmp_path), tmp_path), "quickstart")


def every_night(experiment: str, since: datetime, until: datetime) -> list[date]:
    return [date(2026, 11, day) for day in range(since.day, until.day + 1)]


def test_a_night_with_a_date_in_the_future_hides_no_missed_one(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed, "scheduled_nights", every_night)
    ledger.append("nightly-2026-11-20", "began")
    ledger.append("nightly-2026-11-30", "began")
    note_missed(ledger, date(2026, 11, 23))
    found = [entry.night for entry in ledger.entries() if entry.event == "missed"]
    assert found == ["nightly-2026-11-21", "nightly-2026-11-22"]


def test_each_missed_night_is_told_once(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(missed, "scheduled_nights", every_night)
    monkeypatch.setattr(events, "tell", lambda what, night, *_: told.append((what, night)))
    ledger.append("nightly-2026-11-20", "began")
    for _ in range(2):
        note_missed(ledger, date(2026, 11, 22))
    assert told == [("missed", "nightly-2026-11-21")]


def test_before_the_first_night_none_was_missed(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed, "scheduled_nights", every_night)
    ledger.append("nightly-2026-11-23", "began")
    note_missed(ledger, date(2026, 11, 23))
    assert [entry.event for entry in ledger.entries()] == ["began"]
