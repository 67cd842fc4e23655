"""The date of a night, and scheduled nights that never began."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.server.schemas.schedules import CronSchedule

from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.store.store import Store
from flows.nights import deployment_schedule
from flows.nights.deployment_schedule import record_missed, scheduled_date


def november(*days: int) -> list[date]:
    return [date(2026, 11, day) for day in days]


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NightLedger:
    """The ledger of an experiment with a nightly schedule."""

    def every_night(experiment: str, since: datetime, until: datetime) -> list[date]:
        return 2 * november(*range(since.day, until.day + 1))

    monkeypatch.setattr(deployment_schedule, "scheduled_nights", every_night)
    return NightLedger(Store.at(str(tmp_path), tmp_path), "quickstart")


def missed_nights(ledger: NightLedger) -> list[str]:
    return [entry.night for entry in ledger.read().entries if entry.event == "missed"]


def test_scheduled_nights_after_the_last_one_are_missed_once(ledger: NightLedger) -> None:
    for day in (16, 20):
        ledger.append(f"nightly-2026-11-{day}", "began")
    for _ in range(2):
        record_missed(ledger, date(2026, 11, 23))
    assert missed_nights(ledger) == ["nightly-2026-11-21", "nightly-2026-11-22"]


def test_a_night_with_a_date_in_the_future_hides_no_missed_one(ledger: NightLedger) -> None:
    for day in (20, 30):
        ledger.append(f"nightly-2026-11-{day}", "began")
    record_missed(ledger, date(2026, 11, 22))
    assert missed_nights(ledger) == ["nightly-2026-11-21"]


def test_no_night_is_missed_before_the_first_one(ledger: NightLedger) -> None:
    ledger.append("nightly-2026-11-23", "began")
    record_missed(ledger, date(2026, 11, 23))
    assert missed_nights(ledger) == []


def test_without_a_prefect_server_the_night_continues(
    ledger: NightLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionError("no server")

    monkeypatch.setattr(deployment_schedule, "scheduled_nights", refuse)
    ledger.append("nightly-2026-11-20", "began")
    record_missed(ledger, date(2026, 11, 23))
    assert "Prefect could not list missed nights: ConnectionError: no server" in caplog.text


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in New York, where the clock is set back on 1 November 2026."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def flow_runs(cron: str, zone: str, start: datetime, days: int) -> list[FlowRun]:
    """Flow runs of a schedule, as Prefect's server creates them."""
    schedule = CronSchedule(cron=cron, timezone=zone)
    dates = asyncio.run(schedule.get_dates(days, start=start))
    return [
        FlowRun(
            flow_id=UUID(int=0),
            idempotency_key=f"scheduled {UUID(int=1)} {UUID(int=2)} {moment}",
            expected_start_time=moment,
        )
        for moment in dates
    ]


def test_two_schedules_around_a_clock_change_are_two_nights(in_new_york: None) -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    first, second = flow_runs("0 4 * * *", "UTC", start, 2)
    assert [scheduled_date(first), scheduled_date(second)] == november(1, 2)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("hour", [0, 1, 4, 19, 23])
def test_each_night_of_a_year_has_its_own_date(in_new_york: None, zone: str, hour: int) -> None:
    runs = flow_runs(f"30 {hour} * * *", zone, datetime(2026, 1, 1, tzinfo=UTC), 366)
    assert len({scheduled_date(run) for run in runs}) == 366


def test_a_flow_run_without_a_schedule_has_its_local_date(in_new_york: None) -> None:
    start = datetime(2026, 11, 2, 3, tzinfo=UTC)
    run = FlowRun(flow_id=UUID(int=0), expected_start_time=start)
    assert scheduled_date(run) == date(2026, 11, 1)
